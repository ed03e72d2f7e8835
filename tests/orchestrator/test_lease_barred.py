"""A leader that stands still inside of a transaction, with the lease's row locked: the way is barred for seconds and no longer."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest
import sqlalchemy as sa

from orchestrator.lease import rows
from orchestrator.lease.keeper import SharedLease
from orchestrator.lease.table import LeaseRow
from orchestrator.tables import LEASES
from shared.service.engine import create_engine, parse_url
from shared.service.store import Store
from tests.orchestrator.lease_world import Timer, who


@contextmanager
def standing_still(url: str, act: Callable[[sa.Connection], object]) -> Iterator[sa.Connection]:
    """A transaction that has done `act`, and of which PostgreSQL does not see that nothing more comes."""
    engine = create_engine(parse_url(url), "write")
    with engine.connect() as connection:
        connection.exec_driver_sql("SET idle_in_transaction_session_timeout = 0")
        connection.commit()
        act(connection)
        yield connection
    engine.dispose()


def test_a_leader_that_stands_still_in_a_transaction_bars_the_way_for_so_long_only(
    engine: sa.Engine, postgres_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What PostgreSQL waits for may never come: the machine was frozen with half a statement sent. Nobody else's transaction is touched."""

    def take() -> LeaseRow | int:
        with engine.begin() as connection:
            return rows.take(connection, who("b"), reclaim=False)

    with engine.begin() as connection:
        assert rows.take(connection, who("a", lease_s=0.5), reclaim=False) == 1
    with (
        standing_still(postgres_url, lambda c: c.execute(sa.select(LEASES)).all()) as reader,
        standing_still(postgres_url, lambda c: c.execute(sa.text("SELECT pg_current_xact_id()")).all()) as writer,
        standing_still(postgres_url, lambda c: rows.renew(c, who("a"), 1)) as leader,
    ):
        monkeypatch.setattr(rows, "STALLED_S", 0.0)
        assert isinstance(take(), LeaseRow), "it leads"
        time.sleep(0.6)
        monkeypatch.setattr(rows, "STALLED_S", 60.0)
        assert isinstance(take(), LeaseRow), "it may only be slow"
        assert leader.execute(sa.text("SELECT 1")).scalar_one() == 1
        monkeypatch.setattr(rows, "STALLED_S", 0.1)
        assert isinstance(take(), LeaseRow), "its transaction is ended; that takes a moment"
        with pytest.raises(sa.exc.DBAPIError, match="administrator command"):
            leader.execute(sa.text("SELECT 1"))
        assert take() == 2
        for bystander in (reader, writer):
            assert bystander.execute(sa.text("SELECT 1")).scalar_one() == 1


async def test_a_process_that_stands_still_in_a_transaction_bars_nobody(store: Store, engine: sa.Engine) -> None:
    assert await SharedLease(store, who("a"), Timer()).take() is None
    with engine.connect() as frozen:
        frozen.begin()
        assert rows.renew(frozen, who("a"), 1)  # and no more is heard of it
        other = SharedLease(store, who("b", 0.5), Timer())
        async with asyncio.timeout(60):
            while True:
                if (pause := await other.take()) is None:
                    break
                await asyncio.sleep(pause)
        with pytest.raises(sa.exc.DBAPIError):
            frozen.commit()
        frozen.invalidate()
