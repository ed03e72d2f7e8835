"""`gput party datasets` and `declare`: what a holder's service knows of its datasets, and what their operator says of the fields."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Annotated, Any
from urllib.parse import quote

import typer

from gput.answers import read_as
from gput.commands.manners import FormatOption
from gput.commands.operator import SERVICE, HolderUrl, Token, ask, every
from gput.models import View
from gput.output import Format, emit, show
from gput.words import field_lists

Unit = Annotated[
    list[str] | None, typer.Option(help="FIELD=UNIT, or FIELD=UNIT,UNIT,… with one for each element (repeatable)")
]
Class = Annotated[
    list[str] | None, typer.Option("--class", help="FIELD=NAME,NAME,… of values 0, 1, … in that order (repeatable)")
]


class _Options(View):
    """What is declared of a dataset's fields, among its options."""

    units: dict[str, list[str]] | None = None
    classes: dict[str, list[str]] | None = None


class _Dataset(View):
    """What is read of a dataset in the service's answer."""

    name: str
    options: _Options


def datasets(holder_url: HolderUrl, token: Token, fmt: FormatOption = Format.TABLE) -> None:
    """Datasets that your holder service knows, with what is declared of their fields, where each comes from and what is wrong with it.

    Example:  gput party datasets
    """
    emit(_each(every("datasets", holder_url, token)), ("name", "path", "units", "classes", "source", "fault"), fmt)


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
    """A dataset's declarations beside its other options, as one reads them. Raises: Unavailable `peer-unintelligible`."""
    known = [(row, read_as(_Dataset, row, SERVICE).options) for row in rows]
    return [{**row, "units": _said(options.units), "classes": _said(options.classes)} for row, options in known]


def _said(declared: Mapping[str, Sequence[str]] | None) -> list[str]:
    return [f"{field}={','.join(words)}" for field, words in (declared or {}).items()]
