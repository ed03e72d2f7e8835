"""A session whose orchestrator and one holder keep their state in PostgreSQL ends at the very model of one on SQLite, also when killed."""

from __future__ import annotations

from typing import Any

import pytest
import sqlalchemy as sa

from tests.sessions.session_world import Work
from tests.world.world_faults import Point, Trap, crash
from tests.world.world_material import Material


@pytest.fixture
def holder_postgres_url(postgres_url: str) -> str:
    """A second database on the same server: two services share no tables."""
    name = "holder_under_test"
    engine = sa.create_engine(
        sa.make_url(postgres_url).set(drivername="postgresql+psycopg"), isolation_level="AUTOCOMMIT"
    )
    with engine.connect() as connection:
        connection.exec_driver_sql(f"DROP DATABASE IF EXISTS {name} WITH (FORCE)")
        connection.exec_driver_sql(f"CREATE DATABASE {name}")
    engine.dispose()
    return sa.make_url(postgres_url).set(database=name).render_as_string(hide_password=False)


def _count(url: str, statement: str) -> int:
    engine = sa.create_engine(sa.make_url(url).set(drivername="postgresql+psycopg"))
    with engine.connect() as connection:
        found = int(connection.exec_driver_sql(statement).scalar_one())
    engine.dispose()
    return found


async def test_the_same_model_as_on_sqlite(
    session_world: Any, material: Material, postgres_url: str, holder_postgres_url: str
) -> None:
    work = Work(material.archive, material.weights)
    async with session_world(work, "sqlite") as world:
        session = await world.submit()
        expected = (await world.completed(session))["model"]

    settings = {
        "orchestrator": {"database_url": postgres_url}, "holder-city": {"database_url": holder_postgres_url},
    }  # fmt: skip
    async with session_world(work, "postgres", settings=settings) as world:
        restart = Point("orchestrator", "agent", "/ports/orchestrator/commands", "after", 20)
        trap = Trap(world, restart, crash(world, "orchestrator"))
        session = await world.submit()
        await trap.done()
        view = await world.completed(session)
        assert view["model"]["digest"] == expected["digest"]
        assert view["model"]["sha256"] == expected["sha256"]
        assert [outcome for outcome, _ in await world.statements(session)] == ["closed"] * view["visits_total"]
        assert not list((world.folder / "orchestrator").glob("*.db"))
        assert not list((world.folder / "holder-city").glob("*.db"))
        assert list((world.folder / "holder-north").glob("*.db")), "the search itself must find what is there"
    assert _count(postgres_url, "SELECT count(*) FROM sessions") == 1
