"""`gput party datasets` and `declare`: what a holder's service knows of its datasets, and what their operator says of the fields."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Annotated, Any
from urllib.parse import quote

import typer

from gput.commands.manners import FormatOption
from gput.commands.operator import HolderUrl, Token, ask, every
from gput.output import Format, emit, show
from gput.words import field_lists

Unit = Annotated[
    list[str] | None, typer.Option(help="FIELD=UNIT, or FIELD=UNIT,UNIT,… with one for each element (repeatable)")
]
Class = Annotated[
    list[str] | None, typer.Option("--class", help="FIELD=NAME,NAME,… of values 0, 1, … in that order (repeatable)")
]


def datasets(holder_url: HolderUrl, token: Token, fmt: FormatOption = Format.TABLE) -> None:
    """Datasets that your holder service knows, with what is declared of their fields.

    Example:  gput party datasets
    """
    emit(_each(every("datasets", holder_url, token)), ("name", "path", "units", "classes"), fmt)


def declare(
    dataset: Annotated[str, typer.Argument(help="its name at your holder service")], holder_url: HolderUrl, token: Token,
    unit: Unit = None, classes: Class = None, fmt: FormatOption = Format.TABLE,
) -> None:  # fmt: skip
    """Declare units and classes of a dataset's fields, in place of what was declared. An approval states them, so that a session whose
    holders mean different things is held before it begins: units as they are, names of classes as tags.

    Example:  gput party declare patients --unit features=mg,cm,mmHg --class label=benign,malignant
    """
    said = {"units": field_lists(unit or [], "--unit"), "classes": field_lists(classes or [], "--class")}
    path = f"datasets/{quote(dataset, safe='')}/declaration"
    show(next(iter(_each([ask("PUT", path, holder_url, token, said)]))), fmt)


def _each(rows: Iterable[dict[str, Any]]) -> list[dict[str, Any]]:
    """A dataset's declarations beside its other options, as one reads them."""
    return [{**row, **{name: _said(row["options"].get(name)) for name in ("units", "classes")}} for row in rows]


def _said(declared: dict[str, list[str]] | None) -> list[str]:
    return [f"{field}={','.join(words)}" for field, words in (declared or {}).items()]
