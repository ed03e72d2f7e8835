"""Statements about one row, made once per table: building one anew and finding it in SQLAlchemy's cache costs more than running it.

For what a visit writes and reads; other statements are written out where they are used. What writes is run by the driver itself
(`shared.service.prepared`). Knows no table.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Any

import sqlalchemy as sa

from shared.service.prepared import Prepared

# Before a column's name (none begins so): its value in the condition, and the one that it gets.
_KEY, _SET = "where__", "to__"


def insert_row(connection: sa.Connection, table: sa.Table, values: Mapping[str, Any]) -> None:
    """Insert one row. Raises: sqlalchemy.exc.IntegrityError: it is there already."""
    _insert(table, tuple(values)).run(connection, values)


def insert_rows(connection: sa.Connection, table: sa.Table, rows: Sequence[Mapping[str, Any]]) -> None:
    """Insert rows that all fill the same columns; none is fine. Raises: as `insert_row`."""
    if rows:
        _insert(table, tuple(rows[0])).insert_all(connection, rows)


def update_row(connection: sa.Connection, table: sa.Table, key: Mapping[str, Any], values: Mapping[str, Any]) -> bool:
    """Set `values` (at least one) in the rows whose columns equal `key`; whether there was any."""
    statement = _update(table, tuple(key), tuple(values))
    return statement.run(connection, {**_bound(_KEY, key), **_bound(_SET, values)}) > 0


def put_row(connection: sa.Connection, table: sa.Table, key: Mapping[str, Any], values: Mapping[str, Any]) -> None:
    """Insert the row or overwrite its `values` (a store has one writer thread, so the two statements cannot race)."""
    if not update_row(connection, table, key, values):
        insert_row(connection, table, {**key, **values})


def find_row(connection: sa.Connection, table: sa.Table, key: Mapping[str, Any]) -> dict[str, Any] | None:
    """The first row whose columns equal `key`, if there is one."""
    row = connection.execute(_select(table, tuple(key)), _bound(_KEY, key)).mappings().first()
    return None if row is None else dict(row)


def _bound(prefix: str, values: Mapping[str, Any]) -> dict[str, Any]:
    return {f"{prefix}{name}": value for name, value in values.items()}


def _where(table: sa.Table, names: tuple[str, ...]) -> sa.ColumnElement[bool]:
    return sa.and_(*(table.c[name] == sa.bindparam(f"{_KEY}{name}") for name in names))


@lru_cache(maxsize=256)
def _insert(table: sa.Table, names: tuple[str, ...]) -> Prepared:
    return Prepared(sa.insert(table).inline(), names)


@lru_cache(maxsize=256)
def _update(table: sa.Table, names: tuple[str, ...], changed: tuple[str, ...]) -> Prepared:
    values: dict[str, Any] = {name: sa.bindparam(f"{_SET}{name}") for name in changed}
    return Prepared(sa.update(table).where(_where(table, names)).values(values))


@lru_cache(maxsize=256)
def _select(table: sa.Table, names: tuple[str, ...]) -> sa.Select[Any]:
    return sa.select(table).where(_where(table, names))
