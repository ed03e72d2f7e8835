"""The replay window's table: durable with the next write, purged, bounded, failing closed."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

import pytest
import sqlalchemy as sa

from shared.errors import NotAuthenticated, Unavailable
from shared.service.replay import NOBODY, ReplayWindow
from shared.service.store import Store
from shared.service.tables import JOURNAL, METADATA, REPLAY_NONCES
from tests.service.service_world import FakeClock


async def test_nonce_rows_are_purged_and_bounded(database_url: str) -> None:
    clock = FakeClock()
    store = Store(database_url)
    await store.open()
    await store.write(METADATA.create_all)
    window = ReplayWindow(store, clock, max_per_key=300)
    for index in range(300):
        await window.remember("a", index.to_bytes(16, "big"), int(clock.now))
    with pytest.raises(Unavailable, match="more than 300") as caught:
        await window.remember("a", b"x" * 16, int(clock.now))
    assert caught.value.code == "replay-window-full"
    await window.remember("b", b"x" * 16, int(clock.now))
    await window.settled()
    assert len(await rows_of(store)) == 301
    clock.now += 200
    await window.remember("a", bytes(16), int(clock.now))  # the same nonce, long after: a new request
    await window.settled()
    assert [bytes(row.nonce) for row in await rows_of(store)] == [bytes(16)]
    again = ReplayWindow(store, clock)
    await again.open()
    with pytest.raises(NotAuthenticated, match="received before"):
        await again.remember("a", bytes(16), int(clock.now))
    await store.close()


async def test_a_nonce_that_is_used_again_before_it_was_written_is_one_row(database_url: str) -> None:
    """The database was away for longer than the window; else nothing could be written from then on."""
    store, clock = await ready_store(database_url), FakeClock()
    window = ReplayWindow(store, clock)
    await window.remember("a", bytes(16), int(clock.now))
    clock.now += 200
    for fingerprint in ("a", "b"):
        await window.remember(fingerprint, bytes(16), int(clock.now))
    await window.settled()
    found = {row.fingerprint: row.expires for row in await rows_of(store)}
    assert found == dict.fromkeys("ab", int(clock.now) + window.window_s + 1.0)
    assert window._due == []
    await store.close()


async def rows_of(store: Store) -> Sequence[Any]:
    named = REPLAY_NONCES.select().where(REPLAY_NONCES.c.fingerprint != NOBODY)
    return await store.read(lambda c: c.execute(named).all())


async def ready_store(url: str) -> Store:
    store = Store(url)
    await store.open()
    await store.write(METADATA.create_all)
    return store


async def test_a_nonce_is_durable_with_the_next_write(sqlite_url: str) -> None:
    store, clock = await ready_store(sqlite_url), FakeClock()
    window = ReplayWindow(store, clock)
    await window.remember("a", b"1" * 16, int(clock.now))
    before = store.commits
    await store.write(lambda c: None)
    assert store.commits == before + 1
    assert len(await rows_of(store)) == 1
    await store.close()


async def test_a_nonce_without_a_write_is_flushed_soon(sqlite_url: str) -> None:
    store, clock = await ready_store(sqlite_url), FakeClock()
    window = ReplayWindow(store, clock)
    await window.remember("a", b"1" * 16, int(clock.now))
    assert len(await rows_of(store)) == 0
    await asyncio.sleep(0.4)
    assert len(await rows_of(store)) == 1
    durable = ReplayWindow(store, clock, durable=True)
    await durable.remember("a", b"2" * 16, int(clock.now))
    assert len(await rows_of(store)) == 2
    await store.close()


async def test_a_failed_write_takes_its_nonce_along_and_the_next_brings_both(sqlite_url: str) -> None:
    store, clock = await ready_store(sqlite_url), FakeClock()
    window = ReplayWindow(store, clock)
    await window.remember("a", b"1" * 16, int(clock.now))

    def broken(_connection: sa.Connection) -> None:
        raise KeyError("x")

    with pytest.raises(KeyError):
        await store.write(broken)
    assert len(await rows_of(store)) == 0
    await store.write(lambda c: None)
    assert len(await rows_of(store)) == 1
    await store.close()


async def test_without_its_nonce_nothing_is_written(sqlite_url: str) -> None:
    store, clock = await ready_store(sqlite_url), FakeClock()
    window = ReplayWindow(store, clock)
    await store.write(lambda c: REPLAY_NONCES.drop(c))
    await window.remember("a", b"1" * 16, int(clock.now))
    with pytest.raises(sa.exc.OperationalError):
        await store.write(lambda c: c.execute(JOURNAL.delete()))
    await store.close()
