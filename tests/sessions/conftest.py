"""Fixtures of whole sessions: material and a GPU made once, worlds with programs, weights and data of a test's own."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from gpu_agent.unit import GpuUnit
from tests.sessions.session_world import SessionWorld, Work
from tests.sessions.tour_world import built_work
from tests.world.world import shared_unit
from tests.world.world_canaries import watched
from tests.world.world_material import Material, make_material

SessionWorlds = Callable[..., AbstractAsyncContextManager[SessionWorld]]


@pytest.fixture(scope="session")
def material(tmp_path_factory: pytest.TempPathFactory) -> Material:
    return make_material(tmp_path_factory.mktemp("sessions") / "installation")


@pytest.fixture(scope="session")
def unit(material: Material, tmp_path_factory: pytest.TempPathFactory) -> Iterator[GpuUnit]:
    unit = shared_unit(material.copy(tmp_path_factory.mktemp("sessions-gpu")))
    yield unit
    unit.power_off()


@pytest.fixture
def work(tmp_path: Path) -> Work:
    """Three holders' labelled rows and a classifier for them, as tours train it."""
    return built_work(tmp_path)


@pytest.fixture
def session_world(tmp_path: Path, material: Material, unit: GpuUnit) -> SessionWorlds:
    """`async with session_world(work, ...) as world`: a world whose owner brings `work`, whose holders approve it."""

    @asynccontextmanager
    async def make(work: Work, name: str = "world", **options: Any) -> AsyncIterator[SessionWorld]:
        with watched(tmp_path / "temporary") as traces:
            async with SessionWorld(tmp_path / name, material, unit, work, **options) as world:
                yield world
        assert traces.canaries(world) == [], "a record of a holder's is where the platform can see it"

    return make
