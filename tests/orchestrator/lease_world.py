"""The lease's row in a database of its own, and clocks that a test moves. Knows no test."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass

import pytest
import sqlalchemy as sa

from orchestrator.lease.rows import Claimant
from shared.service.engine import create_engine, parse_url
from shared.service.migrations import upgrade
from shared.service.store import Store

LEASE_S = 3.0


def who(holder: str, lease_s: float = LEASE_S, identity: str = "same") -> Claimant:
    return Claimant(holder, identity, lease_s)


@pytest.fixture
def engine(postgres_url: str) -> Iterator[sa.Engine]:
    upgrade(postgres_url, "orchestrator")
    engine = create_engine(parse_url(postgres_url), "write")
    yield engine
    engine.dispose()


def pass_time(engine: sa.Engine, seconds: float) -> None:
    """The database's clock goes on: the row expires so much earlier."""
    with engine.begin() as connection:
        connection.execute(
            sa.text("UPDATE leases SET expires_at = expires_at - make_interval(secs => :s)"), {"s": seconds}
        )


@dataclass
class Timer:
    now: float = 100.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
async def store(postgres_url: str) -> AsyncIterator[Store]:
    upgrade(postgres_url, "orchestrator")
    store = Store(postgres_url)
    await store.open()
    yield store
    await store.close()
