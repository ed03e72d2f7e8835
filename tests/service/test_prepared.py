"""Statements run by the driver behave as SQLAlchemy's would: values, errors, transactions, lost connections; on both databases."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator
from typing import Any

import pytest
import sqlalchemy as sa
from sqlalchemy.engine import Engine
from sqlalchemy.exc import DBAPIError, IntegrityError

from shared.errors import Unavailable
from shared.service.engine import create_engine, parse_url
from shared.service.prepared import MOST_ROWS, Prepared
from shared.service.statements import find_row, insert_row, insert_rows, update_row
from shared.service.store import Store

META = sa.MetaData()
ODD = sa.Table(
    "odd", META, sa.Column("id", sa.BigInteger, primary_key=True, autoincrement=False), sa.Column("data", sa.JSON),
    sa.Column("raw", sa.LargeBinary), sa.Column("at", sa.Double), sa.Column("yes", sa.Boolean), sa.Column("word", sa.Text),
)  # fmt: skip
ROW: dict[str, Any] = {
    "id": 2**40, "data": {"a": [None, 1.5, "ä%(x)s?:y"]}, "raw": b"\0\xff", "at": 1795446102.1761942, "yes": True, "word": "%s?",
}  # fmt: skip


@pytest.fixture
async def store(database_url: str) -> AsyncIterator[Store]:
    store = Store(database_url)
    await store.open()
    await store.write(META.create_all)
    yield store
    await store.close()


async def count(store: Store) -> int:
    statement = sa.select(sa.func.count()).select_from(ODD)
    return int(await store.read(lambda c: c.execute(statement).scalar_one()))


async def test_every_type_is_stored_as_sqlalchemy_stores_it(store: Store) -> None:
    await store.write(lambda c: insert_row(c, ODD, ROW))
    await store.write(lambda c: c.execute(sa.insert(ODD).values({**ROW, "id": 1})))
    await store.write(lambda c: insert_rows(c, ODD, [{**ROW, "id": 2}, {**ROW, "id": 3}]))
    await store.write(lambda c: insert_rows(c, ODD, []))
    rows = [await store.read(lambda c, id=id: find_row(c, ODD, {"id": id})) for id in (1, 2, 3, ROW["id"])]
    assert [{**row, "id": None} for row in rows if row is not None] == [{**ROW, "id": None}] * 4


@pytest.mark.parametrize("count", [MOST_ROWS, MOST_ROWS + 1, 2 * MOST_ROWS + 5])
async def test_many_rows_are_all_stored(store: Store, count: int) -> None:
    await store.write(lambda c: insert_rows(c, ODD, [{**ROW, "id": number} for number in range(count)]))
    found = await store.read(lambda c: c.execute(sa.select(ODD.c.id, ODD.c.word).order_by(ODD.c.id)).all())
    assert [tuple(row) for row in found] == [(number, ROW["word"]) for number in range(count)]


async def test_an_insert_says_the_rest_of_itself_once(store: Store) -> None:
    """What stands before and behind the row, and what is nested in it."""
    put = Prepared(
        sa.text(
            "INSERT INTO odd (id, word) VALUES (:id, lower(trim(:word))) ON CONFLICT (id) DO UPDATE SET word = excluded.word || ')('"
        )
    )
    await store.write(lambda c: put.insert_all(c, [{"id": 1, "word": " A "}, {"id": 2, "word": "B"}]))
    await store.write(lambda c: put.insert_all(c, [{"id": 2, "word": "C"}, {"id": 3, "word": "D"}]))
    found = await store.read(lambda c: c.execute(sa.select(ODD.c.id, ODD.c.word).order_by(ODD.c.id)).all())
    assert [tuple(row) for row in found] == [(1, "a"), (2, "c)("), (3, "d")]


async def test_a_select_gives_the_first_row_or_none(store: Store) -> None:
    chosen = Prepared(
        sa.select(ODD.c.id, ODD.c.raw)
        .where(ODD.c.id >= sa.bindparam("least"), ODD.c.yes == sa.true())
        .order_by(ODD.c.id)
    )
    assert await store.write(lambda c: chosen.first(c, {"least": 0})) is None
    await store.write(lambda c: insert_rows(c, ODD, [{**ROW, "id": 2}, {**ROW, "id": 3}]))
    found = await store.read(lambda c: chosen.first(c, {"least": 1}))
    assert found is not None
    assert (found[0], bytes(found[1])) == (2, ROW["raw"])


async def test_a_refused_row_spares_the_group_and_shows_no_value(store: Store) -> None:
    await store.write(lambda c: insert_row(c, ODD, {"id": 1, "word": "secret-word"}))
    gate = threading.Event()
    blocked = asyncio.ensure_future(store.write(lambda c: gate.wait(5)))
    await asyncio.sleep(0.05)
    acts = [lambda c, id=id: insert_row(c, ODD, {"id": id, "word": "secret-word"}) for id in (2, 1, 3)]
    writes = [asyncio.ensure_future(store.write(act)) for act in acts]
    await asyncio.sleep(0.05)
    gate.set()
    await blocked
    outcomes = await asyncio.gather(*writes, return_exceptions=True)
    assert outcomes[0] is outcomes[2] is None
    assert isinstance(outcomes[1], IntegrityError)
    assert "secret-word" not in str(outcomes[1])
    assert await count(store) == 3


async def test_a_write_that_raises_leaves_nothing_of_what_the_driver_ran(store: Store) -> None:
    def act(connection: sa.Connection) -> None:
        insert_row(connection, ODD, {"id": 1})
        raise KeyError("x")

    with pytest.raises(KeyError):
        await store.write(act)
    assert await count(store) == 0
    await store.write(lambda c: insert_row(c, ODD, {"id": 1}))
    assert await count(store) == 1


async def test_a_statement_outside_a_transaction_begins_one(store: Store) -> None:
    engine = create_engine(parse_url(store.url), "write")
    with engine.connect() as connection:
        insert_row(connection, ODD, {"id": 1})
        assert connection.in_transaction()
    assert await count(store) == 0
    engine.dispose()


async def test_a_connection_lost_under_the_driver_writes_nothing_and_heals(postgres_url: str) -> None:
    store = Store(postgres_url)
    await store.open()
    await store.write(META.create_all)

    def cut(connection: sa.Connection) -> None:
        insert_row(connection, ODD, {"id": 1})
        with pytest.raises(DBAPIError):
            connection.exec_driver_sql("SELECT pg_terminate_backend(pg_backend_pid())")
        insert_row(connection, ODD, {"id": 2})

    def cut_below(connection: sa.Connection) -> None:
        insert_row(connection, ODD, {"id": 1})
        with connection.connection.cursor() as cursor, pytest.raises(Exception, match="terminat"):
            cursor.execute("SELECT pg_terminate_backend(pg_backend_pid())")
        insert_row(connection, ODD, {"id": 2})

    for act in (cut, cut_below):
        with pytest.raises((Unavailable, sa.exc.PendingRollbackError)):
            await store.write(act)
        assert await count(store) == 0
    await store.write(lambda c: insert_row(c, ODD, {"id": 3}))
    assert await count(store) == 1
    await store.close()


async def test_who_listens_to_statements_hears_of_all(store: Store) -> None:
    heard: list[tuple[str, bool]] = []

    def executed(_c: object, _cursor: Any, statement: str, _values: Any, _ctx: object, many: bool) -> None:
        if ODD.name in statement:  # whatever else of this process is still about has engines, too
            heard.append((statement.split()[0], many))

    sa.event.listen(Engine, "after_cursor_execute", executed)
    try:
        await store.write(lambda c: insert_row(c, ODD, {"id": 1}))
        await store.write(lambda c: insert_rows(c, ODD, [{"id": 2}, {"id": 3}]))
        assert await store.write(lambda c: update_row(c, ODD, {"id": 1}, ROW))
    finally:
        sa.event.remove(Engine, "after_cursor_execute", executed)
    several = store.dialect == "sqlite"  # PostgreSQL gets them in one statement
    assert heard == [("INSERT", False), ("INSERT", several), ("UPDATE", False)]


def test_what_sqlalchemy_fills_in_itself_is_refused() -> None:
    table = sa.Table(
        "t", sa.MetaData(), sa.Column("id", sa.Integer, primary_key=True), sa.Column("x", sa.Text, default=str)
    )
    engine = sa.create_engine("sqlite://")
    with engine.connect() as connection, pytest.raises(ValueError, match="SQLAlchemy"):
        insert_row(connection, table, {"id": 1})
