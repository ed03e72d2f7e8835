"""Fixtures of successors: four holders of which three begin, a GPU made once, and sessions that have come to rest."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from gpu_agent.unit import GpuUnit
from tests.successors.successor_world import PARTIES, NewWorld, SuccessorWorld
from tests.world.world import shared_unit
from tests.world.world_canaries import watched
from tests.world.world_material import Material, make_material


@pytest.fixture(scope="session")
def material(tmp_path_factory: pytest.TempPathFactory) -> Material:
    return make_material(tmp_path_factory.mktemp("successors") / "installation", PARTIES)


@pytest.fixture(scope="session")
def unit(material: Material, tmp_path_factory: pytest.TempPathFactory) -> Iterator[GpuUnit]:
    unit = shared_unit(material.copy(tmp_path_factory.mktemp("successors-gpu")))
    yield unit
    unit.power_off()


@pytest.fixture
def new_world(tmp_path: Path, material: Material, unit: GpuUnit) -> NewWorld:
    """`async with new_world() as world`; the same name again is a world over the same files."""

    @asynccontextmanager
    async def make(name: str = "world", *, own_gpu: bool = False, **options: Any) -> AsyncIterator[SuccessorWorld]:
        with watched(tmp_path / "temporary") as traces:
            async with SuccessorWorld(tmp_path / name, material, None if own_gpu else unit, **options) as world:
                yield world
        assert traces.canaries(world) == [], "a record of a holder's is where the platform can see it"

    return make


@pytest.fixture
async def world(new_world: NewWorld) -> AsyncIterator[SuccessorWorld]:
    async with new_world() as world:
        yield world
