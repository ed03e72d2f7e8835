"""Shows rows to a person or a program: table, json or jsonl on stdout; talk and errors go to stderr. Knows no service."""

from __future__ import annotations

import json
import math
import sys
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from datetime import UTC, datetime
from enum import StrEnum
from typing import Any, Self

from shared.errors import GputError
from shared.service.printable import printable

SOON_S = 1.0
TIMES = ("at", "last_seen")
"""Fields of a time in seconds since 1970, beside those that end in _at or _until."""


class Format(StrEnum):
    """How a command prints its result."""

    TABLE = "table"
    JSON = "json"
    JSONL = "jsonl"


def emit(rows: Iterable[Mapping[str, Any]], columns: Sequence[str], fmt: Format) -> None:
    """Print `rows`: `columns` choose and order what a table shows; json and jsonl carry every field."""
    found = list(rows)
    if fmt is Format.JSON:
        print(_document(found, indent=2))
    elif fmt is Format.JSONL:
        for row in found:
            print(_document(row))
    else:
        _table(found, columns)


def emit_tables(tables: Sequence[tuple[Iterable[Mapping[str, Any]], Sequence[str]]], fmt: Format) -> None:
    """Print several (rows, columns): a table each for people; for programs one list of all rows, so that json is one document."""
    if fmt is Format.TABLE:
        for rows, columns in tables:
            emit(rows, columns, fmt)
    else:
        emit([row for rows, _ in tables for row in rows], (), fmt)


def show(record: Mapping[str, Any], fmt: Format) -> None:
    """Print one record: a table shows a line per field, a record inside it as `field.name`, a list of records as a table below."""
    if fmt is Format.TABLE:
        fields: dict[str, Any] = {}
        for key, value in record.items():
            inside = value if isinstance(value, dict) else {}
            fields |= {f"{key}.{name}": inner for name, inner in inside.items()} or {key: value}
        lists = {key: value for key, value in fields.items() if _is_list_of_records(value)}
        rows = [{"field": key, "value": value} for key, value in fields.items() if key not in lists]
        _table(rows, ("field", "value"), name="field")
        for key, value in lists.items():
            print(f"\n{printable(key)}")
            _table(value, tuple(dict.fromkeys(name for row in value for name in row)))
    else:
        print(_document(record, indent=2 if fmt is Format.JSON else None))


def _document(value: Any, indent: int | None = None) -> str:
    """As JSON, which has no NaN and no infinity (RFC 8259): they are null."""
    try:
        return json.dumps(value, indent=indent, default=str, allow_nan=False)
    except ValueError:
        return json.dumps(_finite(value), indent=indent, default=str)


def _finite(value: Any) -> Any:
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, Mapping):
        return {name: _finite(inner) for name, inner in value.items()}
    return [_finite(inner) for inner in value] if isinstance(value, (list, tuple)) else value


def _is_list_of_records(value: Any) -> bool:
    return isinstance(value, (list, tuple)) and bool(value) and all(isinstance(row, Mapping) for row in value)


def say(text: str) -> None:
    """Talk to the person, on stderr, so that stdout stays data."""
    print(printable(text, but="\n\t"), file=sys.stderr)


class Ticker:
    """Says on a terminal, in one line on stderr, how far a long work is; nowhere else, and nothing of work that is soon done."""

    def __init__(self, what: str, clock: Callable[[], float] = time.monotonic) -> None:
        self._what, self._clock, self._began = what, clock, clock()
        self._shown = ""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        """The line goes: the result, or the error, is what stays."""
        if self._shown:
            print(f"\r{' ' * len(self._shown)}\r", end="", file=sys.stderr, flush=True)

    def at(self, done: int, total: int) -> None:
        """So much is done."""
        if self._clock() - self._began >= SOON_S and sys.stderr.isatty():
            self._shown = f"{done} of {total} {self._what} ({done / total:.0%})"
            print(f"\r{self._shown}", end="", file=sys.stderr, flush=True)


def explain(error: GputError) -> str:
    """One line for people: what, what was expected, what to do, and the stable code; then a line for each of several wrong fields."""
    fields = [entry for entry in error.errors or () if entry.get("field")]
    parts = [_sentence(f"{error.title.lower()}: {error.detail}")]
    if len(fields) == 1 and _what(fields[0]) not in error.detail:
        parts.append(_sentence(_what(fields[0])))
    parts += [f"Expected {error.expected}, got {error.got}."] if error.expected and error.got else []
    # The remedy of the first field stands beside it.
    own = [entry.get("remedy") for entry in fields] if len(fields) > 1 else []
    parts += [_sentence(error.remedy)] if error.remedy and error.remedy not in own else []
    lines = [" ".join([*parts, f"[{error.code}]"])]
    for entry in fields if len(fields) > 1 else ():
        lines.append("  " + " ".join(_sentence(text) for text in (_what(entry), entry.get("remedy")) if text))
    # What goes on is indented, also within what a peer said: a line of its own making would pass for one of ours.
    return printable("\n".join(line.replace("\n", "\n  ") for line in lines), but="\n\t")


def _what(entry: Mapping[str, str]) -> str:
    """A wrong field and what is wrong with it."""
    return ": ".join(filter(None, (entry.get("field"), entry.get("reason") or entry.get("message"))))


def _sentence(text: str) -> str:
    return text if text.endswith((".", "!", "?", "\n")) else text + "."


def _table(rows: Sequence[Mapping[str, Any]], columns: Sequence[str], name: str | None = None) -> None:
    """`name`: the column in which a row says what its value is called; elsewhere the column itself does."""
    from rich.console import Console
    from rich.table import Table

    table = Table(*map(printable, columns), box=None, pad_edge=False, header_style="bold")
    for row in rows:
        # What a holder or a peer says must not steer the terminal.
        cells = (cell(row.get(column), column if name is None else str(row[name])) for column in columns)
        table.add_row(*(printable(cell, but="\n\t") for cell in cells))
    Console(width=None if sys.stdout.isatty() else 200, highlight=False, markup=False).print(table)


def cell(value: Any, name: str) -> str:
    """A field's value as a table shows it."""
    if value is None or value in ([], {}):
        return "-"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, (int, float)) and (name.endswith(("_at", "_until", "_from")) or name in TIMES):
        with suppress(ValueError, OverflowError, OSError):  # what no calendar has stays a number
            return f"{datetime.fromtimestamp(value, UTC):%Y-%m-%d %H:%M:%S} UTC"
    if isinstance(value, float):
        return f"{value:.4g}"
    if isinstance(value, (list, tuple)) and all(isinstance(entry, str) for entry in value):
        return ", ".join(value)
    if isinstance(value, (dict, list, tuple)):
        return json.dumps(value, default=str)
    return str(value)
