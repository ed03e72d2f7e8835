"""The store on both databases: durable, atomic, no lost update, clear failures."""

from __future__ import annotations

import asyncio
import contextlib
import os
import sqlite3
import threading
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import sqlalchemy as sa

from shared.errors import ConfigurationError, Conflict, Unavailable
from shared.service.store import Store

META = sa.MetaData()
COUNTERS = sa.Table(
    "counters", META, sa.Column("name", sa.Text, primary_key=True), sa.Column("value", sa.Integer, nullable=False)
)
BLOBS = sa.Table("blobs", META, sa.Column("id", sa.Integer, primary_key=True), sa.Column("data", sa.LargeBinary))


@pytest.fixture
async def store(database_url: str) -> AsyncIterator[Store]:
    store = Store(database_url)
    await store.open()
    await store.write(lambda c: META.create_all(c))
    await store.write(lambda c: c.execute(sa.insert(COUNTERS).values(name="n", value=0)))
    yield store
    await store.close()


def value(connection: sa.Connection) -> int:
    return int(connection.execute(sa.select(COUNTERS.c.value).where(COUNTERS.c.name == "n")).scalar_one())


def increment(connection: sa.Connection) -> int:
    new = value(connection) + 1
    connection.execute(sa.update(COUNTERS).values(value=new))
    return new


def raise_to(connection: sa.Connection, seen: int, new: int) -> None:
    if connection.execute(sa.update(COUNTERS).where(COUNTERS.c.value == seen).values(value=new)).rowcount != 1:
        raise Conflict("it has changed since it was read")


async def test_no_update_is_lost(store: Store) -> None:
    results = await asyncio.gather(*[store.write(increment) for _ in range(300)])
    assert sorted(results) == list(range(1, 301))
    assert await store.read(value) == 300


async def test_two_processes_lose_nothing(store: Store) -> None:
    """A second Store on the same database stands for a second process; compare-and-set decides between them."""
    other = Store(store.url)
    await other.open()
    try:

        async def add(which: Store) -> int:
            done = 0
            while done < 25:
                seen = await which.read(value)
                with contextlib.suppress(Conflict):
                    await which.write(lambda c, seen=seen: raise_to(c, seen, seen + 1))
                    done += 1
            return done

        await asyncio.gather(add(store), add(other))
        assert await store.read(value) == 50
    finally:
        await other.close()


async def test_waiting_writes_share_a_commit(store: Store) -> None:
    gate = threading.Event()
    blocked = asyncio.ensure_future(store.write(lambda c: gate.wait(5)))
    await asyncio.sleep(0.05)
    writes = [asyncio.ensure_future(store.write(increment)) for _ in range(20)]
    await asyncio.sleep(0.05)
    before = store.commits
    gate.set()
    await asyncio.gather(blocked, *writes)
    assert store.commits - before <= 3
    assert await store.read(value) == 20


async def test_a_failing_write_undoes_only_itself(store: Store) -> None:
    def broken(connection: sa.Connection) -> None:
        increment(connection)
        raise KeyError("x")

    gate = threading.Event()
    blocked = asyncio.ensure_future(store.write(lambda c: gate.wait(5)))
    await asyncio.sleep(0.05)
    writes = [asyncio.ensure_future(store.write(act)) for act in (increment, broken, increment)]
    await asyncio.sleep(0.05)
    gate.set()
    await blocked
    first, second, third = await asyncio.gather(*writes, return_exceptions=True)
    assert (first, third) == (1, 2)
    assert isinstance(second, KeyError)
    assert await store.read(value) == 2
    with pytest.raises(KeyError):
        await store.write(broken)
    assert await store.read(value) == 2


async def test_unique_violation_spares_the_group(store: Store) -> None:
    gate = threading.Event()
    blocked = asyncio.ensure_future(store.write(lambda c: gate.wait(5)))
    await asyncio.sleep(0.05)
    insert = sa.insert(COUNTERS).values(name="n", value=7)
    writes = [asyncio.ensure_future(store.write(act)) for act in (increment, lambda c: c.execute(insert), increment)]
    await asyncio.sleep(0.05)
    gate.set()
    await blocked
    outcomes = await asyncio.gather(*writes, return_exceptions=True)
    assert isinstance(outcomes[1], sa.exc.IntegrityError)
    assert await store.read(value) == 2


async def test_reader_cannot_write_and_sees_no_half(store: Store) -> None:
    with pytest.raises(Exception, match=r"(?i)read.?only"):
        await store.read(increment)
    assert await store.read(value) == 0


async def test_survives_close_and_refuses_after(store: Store) -> None:
    pending = [asyncio.ensure_future(store.write(increment)) for _ in range(5)]
    await asyncio.sleep(0)
    await store.close()
    await store.close()
    assert sorted(await asyncio.gather(*pending)) == [1, 2, 3, 4, 5]
    for act in (store.write, store.read):
        with pytest.raises(Unavailable) as caught:
            await act(increment)
        assert caught.value.code == "store-closed"
    again = Store(store.url)
    await again.open()
    assert await again.read(value) == 5
    await again.close()


async def test_a_close_that_was_given_up_is_waited_for_by_the_next(store: Store) -> None:
    """Whoever has seen it closed may put another file in its place: a connection that ends later would write into that one."""
    gate, closing, on = threading.Event(), threading.Event(), threading.Event()

    def close_slowly(*_: object) -> None:
        closing.set()
        on.wait(5)

    for engine in (store._write_engine, store._read_engine):
        assert engine is not None
        sa.event.listen(engine, "close", close_slowly)
    pending = asyncio.ensure_future(store.write(lambda c: gate.wait(5) and increment(c)))
    await asyncio.sleep(0)
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.05):
            await store.close()
    others = [asyncio.ensure_future(store.close()) for _ in range(3)]
    gate.set()
    assert await asyncio.to_thread(closing.wait, 5)
    await asyncio.sleep(0.05)
    assert not [one for one in others if one.done()]
    on.set()
    await asyncio.gather(*others)
    assert await pending == 1
    assert store._writer is not None
    assert not store._writer.is_alive()
    if store.dialect == "sqlite":  # the last connection to a file takes its log along
        assert not os.path.exists(store.url.removeprefix("sqlite:///") + "-wal")  # noqa: ASYNC240  # one look


async def test_cancelled_caller_leaves_the_writer_alive(store: Store) -> None:
    gate = threading.Event()
    task = asyncio.ensure_future(store.write(lambda c: gate.wait(5)))
    await asyncio.sleep(0.05)
    task.cancel()
    gate.set()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert await store.write(increment) == 1


async def test_disk_full_leaves_nothing_half_done(sqlite_url: str) -> None:
    store = Store(sqlite_url)
    await store.open()
    await store.write(lambda c: META.create_all(c))
    pages = await store.write(lambda c: c.exec_driver_sql("PRAGMA page_count").scalar())
    await store.write(lambda c: c.exec_driver_sql(f"PRAGMA max_page_count={pages + 10}").scalar())

    def fill(connection: sa.Connection) -> None:
        for index in range(100):
            connection.execute(sa.insert(BLOBS).values(id=index, data=bytes(4096)))

    with pytest.raises(Unavailable) as caught:
        await store.write(fill)
    assert caught.value.code == "disk-full"
    assert caught.value.remedy
    assert await store.read(lambda c: c.execute(sa.select(sa.func.count()).select_from(BLOBS)).scalar()) == 0
    await store.write(lambda c: c.execute(sa.insert(BLOBS).values(id=1, data=b"small")))
    await store.close()


async def test_sqlite_commits_are_durable(sqlite_url: str) -> None:
    store = Store(sqlite_url)
    await store.open()
    pragmas = {
        name: await store.write(lambda c, name=name: c.exec_driver_sql(f"PRAGMA {name}").scalar())
        for name in ("journal_mode", "synchronous", "foreign_keys")
    }
    await store.close()
    assert pragmas == {"journal_mode": "wal", "synchronous": 2, "foreign_keys": 1}


async def test_locked_database_is_named(sqlite_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("shared.service.engine.BUSY_TIMEOUT_MS", 50)
    store = Store(sqlite_url)
    await store.open()
    holder = sqlite3.connect(sqlite_url.removeprefix("sqlite:///"), isolation_level=None)
    holder.execute("BEGIN IMMEDIATE")
    with pytest.raises(Unavailable) as caught:
        await store.write(lambda c: None)
    assert caught.value.code == "database-unreachable"
    holder.execute("ROLLBACK")
    holder.close()
    await store.write(lambda c: None)
    await store.close()


@pytest.mark.parametrize(
    "url", ["postgresql://nobody@127.0.0.1:1/x", "sqlite:////no/such/folder/state.db"], ids=["postgresql", "sqlite"]
)
async def test_unreachable_database_is_named(url: str) -> None:
    with pytest.raises(Unavailable) as caught:
        await Store(url).open()
    assert caught.value.code == "database-unreachable"
    assert caught.value.remedy


@pytest.mark.parametrize("url", ["mysql://u:pass-word@h/x", "sqlite://", "pass-word", "sqlite:///:memory:"])
def test_unserved_url_is_refused_without_showing_it(url: str) -> None:
    with pytest.raises(ConfigurationError) as caught:
        Store(url)
    assert "pass-word" not in str(caught.value)


async def test_statement_parameters_stay_out_of_errors(store: Store) -> None:
    with pytest.raises(sa.exc.IntegrityError) as caught:
        await store.write(lambda c: c.execute(sa.insert(BLOBS), [{"id": 1, "data": b"secret-bytes"}] * 2))
    assert "secret-bytes" not in str(caught.value)


def test_path_is_a_file(tmp_path: Path) -> None:
    assert Store(f"sqlite:///{tmp_path}/a.db").dialect == "sqlite"
    assert Store("postgresql://h/x").dialect == "postgresql"
