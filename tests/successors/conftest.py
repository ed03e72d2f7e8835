"""Fixtures of successors: four holders of which three begin, a GPU made once, and sessions that have come to rest."""

from __future__ import annotations

import asyncio
import shutil
from collections.abc import AsyncIterator, Iterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from gpu_agent.unit import GpuUnit
from tests.successors.successor_world import PARTIES, NewWorld, Rested, SuccessorWorld, set_up
from tests.world.world import shared_unit
from tests.world.world_canaries import watched
from tests.world.world_material import Material, make_material
from tests.world.world_recorder import recording


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


@pytest.fixture(scope="session")
def rested(material: Material, unit: GpuUnit, tmp_path_factory: pytest.TempPathFactory) -> Rested:
    """A session that its `LEFT` did not come back to, ended by its owner; what a successor of it comes to, undisturbed."""
    folder = tmp_path_factory.mktemp("rested") / "world"

    async def played() -> Rested:
        async with SuccessorWorld(folder, material, unit) as world:
            session = await world.ended()
        shutil.copytree(folder, folder.with_name("kept"))
        with recording() as recorder:
            async with SuccessorWorld(folder, material, unit) as world:
                view = await world.completed(await world.succeed(session))
        return Rested(folder.with_name("kept"), session, view["model"], set_up(recorder))

    return asyncio.run(played())


@pytest.fixture
def again(rested: Rested, new_world: NewWorld, tmp_path: Path) -> NewWorld:
    """`async with again() as world`: a world over the files of `rested`, each time another."""

    def make(name: str = "world", **options: Any) -> AbstractAsyncContextManager[SuccessorWorld]:
        shutil.copytree(rested.folder, tmp_path / name)
        return new_world(name, **options)

    return make


@pytest.fixture
async def world(new_world: NewWorld) -> AsyncIterator[SuccessorWorld]:
    async with new_world() as world:
        yield world
