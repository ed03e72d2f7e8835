"""Fixtures of the client's tests: one finished session of the in-process world, saved as a person would save it."""

from __future__ import annotations

import asyncio
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from gpu_agent.unit import GpuUnit
from gput.receipts import save
from tests.gput.gput_samples import Bundle, Saved
from tests.world.world import World, shared_unit
from tests.world.world_material import Material, make_material


@pytest.fixture(scope="session")
def gput_material(tmp_path_factory: pytest.TempPathFactory) -> Material:
    return make_material(tmp_path_factory.mktemp("gput-material") / "installation")


@pytest.fixture(scope="session")
def gput_unit(gput_material: Material, tmp_path_factory: pytest.TempPathFactory) -> Iterator[GpuUnit]:
    unit = shared_unit(gput_material.copy(tmp_path_factory.mktemp("gput-gpu")))
    yield unit
    unit.power_off()


@pytest.fixture(scope="session")
def saved(gput_material: Material, gput_unit: GpuUnit, tmp_path_factory: pytest.TempPathFactory) -> Saved:
    folder = tmp_path_factory.mktemp("gput-session")

    async def run() -> Saved:
        async with World(folder / "world", gput_material, gput_unit) as world:
            session = await world.submit()
            view = await world.completed(session)
            await save(world.owner, session, folder / "receipts", folder / "world" / "trust")
            links = [{"holder": name, **await world.operator(name).get("links")} for name in world.holders]
            return Saved(folder / "receipts", session, view, await world.visits(session), links)

    return asyncio.run(run())


@pytest.fixture
def bundle(saved: Saved, tmp_path: Path) -> Bundle:
    shutil.copytree(saved.folder, tmp_path / "receipts")
    return Bundle(tmp_path / "receipts")
