"""Rows that are shown, out of a database that is the platform's: one that somebody changed takes no other away, and is no fault of who
asks. Knows no table; sessions' own rows are `orchestrator.sessions.rows`'s."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from sqlalchemy import JSON, Column, Connection, Select

from orchestrator.sessions.rows import ILLEGIBLE
from shared.errors import BadRequest, VerificationFailed
from shared.service.logging import get_logger

_log = get_logger("rows")


class StoredRowChanged(VerificationFailed):
    """What is stored does not have the form in which this service writes it; whoever asked is not at fault."""

    status, default_code = 500, "stored-row-changed"


@contextmanager
def whole(what: str) -> Iterator[None]:
    """What is stored of `what` is being read. Raises: StoredRowChanged: it has another form. Errors of the family pass as they are."""
    try:
        yield
    except ILLEGIBLE as error:
        raise StoredRowChanged(
            f"What is stored of {what} does not have the form in which it was written ({type(error).__name__})",
            remedy="Somebody changed the database behind this service: restore it from a backup, and ask who had access.",
        ) from error


def presentable(view: Any) -> Any:
    """A view, as it is. Raises: TypeError, ValueError: no answer could hold it."""
    json.dumps(view, ensure_ascii=False, allow_nan=False).encode()
    return view


def readable(connection: Connection, statement: Select[Any], key: Column[Any]) -> list[dict[str, Any]]:
    """The rows of an ordered statement. Of one that cannot be read there is its `key` alone, so that who pages through them finds its
    place; one whose key is none is not there."""
    try:
        rows = [dict(row) for row in connection.execute(statement).mappings()]
    except ILLEGIBLE:
        rows = list(_one_by_one(connection, statement, key))
    types = {column.name: column for column in statement.selected_columns if isinstance(column, Column)}
    fitting = [row if _fits(row, types) else {key.name: row[key.name]} for row in rows]
    return [row for row in fitting if _fits(row, types)]


def _one_by_one(connection: Connection, statement: Select[Any], key: Column[Any]) -> Iterator[dict[str, Any]]:
    keys = statement.with_only_columns(key, maintain_column_froms=True)
    for place, name in enumerate(connection.execute(keys).scalars().all()):
        try:
            yield dict(connection.execute(statement.limit(1).offset(place)).mappings().one())
        except ILLEGIBLE:
            yield {key.name: name}


def _fits(row: Mapping[str, Any], types: Mapping[str, Column[Any]]) -> bool:
    """Whether each value is of the type of its column: SQLite keeps any in any."""
    return all(_is_of(value, types[name]) for name, value in row.items() if name in types)


def _is_of(value: Any, column: Column[Any]) -> bool:
    if value is None:
        return bool(column.nullable)
    if isinstance(column.type, JSON):
        return True
    wanted = column.type.python_type
    return isinstance(value, (int, float) if wanted is float else wanted)


def shown(rows: Iterable[dict[str, Any]], view: Callable[[dict[str, Any]], Any], of: str) -> list[Any]:
    """Each row as an answer shows it. One that cannot be is left out, and named in the log."""
    found = []
    for row in rows:
        try:
            found.append(presentable(view(row)))
        except (*ILLEGIBLE, BadRequest) as error:
            left_out(row, of, error)
    return found


def left_out(row: Mapping[str, Any], of: str, error: Exception) -> None:
    """A list goes on without this row."""
    _log.error(
        "a stored row cannot be shown", of=of, row=str(next(iter(row.values()), ""))[:100], kind=type(error).__name__
    )
