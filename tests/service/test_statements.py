"""Statements about one row do what the written-out ones would, and are built once, on both databases."""

from __future__ import annotations

import pytest
import sqlalchemy as sa
from sqlalchemy.exc import IntegrityError

from shared.service import statements
from shared.service.statements import find_row, insert_row, put_row, update_row

# Columns whose names are words of SQL or of SQLAlchemy's own parameters.
THINGS = sa.Table(
    "things", sa.MetaData(), sa.Column("index", sa.Integer, primary_key=True), sa.Column("set_index", sa.Integer),
    sa.Column("key_index", sa.String), sa.Column("data", sa.JSON),
)  # fmt: skip


@pytest.fixture
def connection(database_url: str) -> sa.Connection:
    url = sa.make_url(database_url)
    engine = sa.create_engine(url.set(drivername="postgresql+psycopg") if url.drivername == "postgresql" else url)
    with engine.begin() as connection:
        THINGS.metadata.create_all(connection)
        yield connection
    engine.dispose()


def test_rows_come_back_as_they_were_written(connection: sa.Connection) -> None:
    first = {"index": 1, "set_index": 5, "key_index": "a", "data": {"x": [1, None]}}
    insert_row(connection, THINGS, first)
    insert_row(connection, THINGS, {"index": 2, "data": None})
    assert find_row(connection, THINGS, {"index": 1}) == first
    assert find_row(connection, THINGS, {"index": 1, "key_index": "b"}) is None
    assert find_row(connection, THINGS, {"index": 2}) == {
        "index": 2,
        "set_index": None,
        "key_index": None,
        "data": None,
    }


def test_only_what_was_named_changes_and_only_there(connection: sa.Connection) -> None:
    for index in (1, 2):
        insert_row(connection, THINGS, {"index": index, "set_index": index, "key_index": "old", "data": [index]})
    assert update_row(connection, THINGS, {"index": 1}, {"index": 7, "key_index": "new"})
    assert not update_row(connection, THINGS, {"index": 1}, {"key_index": "never"})
    assert find_row(connection, THINGS, {"index": 7}) == {"index": 7, "set_index": 1, "key_index": "new", "data": [1]}
    assert find_row(connection, THINGS, {"index": 2}) == {"index": 2, "set_index": 2, "key_index": "old", "data": [2]}


def test_put_inserts_once_and_then_overwrites(connection: sa.Connection) -> None:
    for data in ([1], [2]):
        put_row(connection, THINGS, {"index": 3}, {"data": data})
    assert find_row(connection, THINGS, {"index": 3})["data"] == [2]
    with pytest.raises(IntegrityError), connection.begin_nested():
        insert_row(connection, THINGS, {"index": 3})


def test_a_statement_is_built_once(connection: sa.Connection) -> None:
    built = [
        (
            statements._insert(THINGS, ("index",)),
            statements._update(THINGS, ("index",), ("data",)),
            statements._select(THINGS, ("index",)),
        )
        for _ in range(2)
    ]
    assert all(first is second for first, second in zip(*built, strict=True))
