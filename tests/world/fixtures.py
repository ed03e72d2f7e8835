"""Fixtures of the in-process world: material and a GPU made once, a fresh world per test."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from gpu_agent.unit import GpuUnit
from orchestrator.lease import keeper
from tests.world.world import NewWorld, World, shared_unit
from tests.world.world_canaries import watched
from tests.world.world_hand import Hand, at_hand
from tests.world.world_material import HOLDERS, Material, make_material
from tests.world.world_recording import Recording, record_session
from tests.world.world_service import unless_killed
from tests.world.world_standby import NewPair, PairWorld


@pytest.fixture(scope="session")
def material(tmp_path_factory: pytest.TempPathFactory) -> Material:
    return make_material(tmp_path_factory.mktemp("material") / "installation")


@pytest.fixture(scope="session")
def unit(material: Material, tmp_path_factory: pytest.TempPathFactory) -> Iterator[GpuUnit]:
    unit = shared_unit(material.copy(tmp_path_factory.mktemp("gpu")))
    yield unit
    unit.power_off()


@pytest.fixture(scope="session")
def recorded(material: Material, unit: GpuUnit, tmp_path_factory: pytest.TempPathFactory) -> Recording:
    """One undisturbed session, run once for all tests that only read what happened."""
    return record_session(tmp_path_factory.mktemp("recorded") / "world", material, unit)


@pytest.fixture
def new_world(tmp_path: Path, material: Material, unit: GpuUnit) -> NewWorld:
    """Worlds over the lent GPU; the same name again is a world over the same files. `own_gpu=True` powers another.

    At each one's end no window of anybody's canary record may be anywhere that the platform can look.
    """

    @asynccontextmanager
    async def make(name: str = "world", *, own_gpu: bool = False, **options: Any) -> AsyncIterator[World]:
        with watched(tmp_path / "temporary") as traces:
            async with World(tmp_path / name, material, None if own_gpu else unit, **options) as world:
                yield world
        assert traces.canaries(world) == [], "a record of a holder's is where the platform can see it"

    return make


@pytest.fixture
async def world(new_world: NewWorld) -> AsyncIterator[World]:
    async with new_world() as world:
        yield world


@pytest.fixture
def new_pair(
    tmp_path: Path, material: Material, unit: GpuUnit, postgres_url: str, monkeypatch: pytest.MonkeyPatch
) -> NewPair:
    """Worlds with an orchestrator and its standby over one PostgreSQL."""
    monkeypatch.setattr(keeper, "_apart", unless_killed(keeper._apart))  # else a killed leader lets go of its lease

    @asynccontextmanager
    async def make() -> AsyncIterator[PairWorld]:
        with watched(tmp_path / "temporary") as traces:
            async with PairWorld(tmp_path / "world", material, unit, postgres_url, holders=HOLDERS) as world:
                yield world
        assert traces.canaries(world) == [], "a record of a holder's is where the platform can see it"

    return make


@pytest.fixture
async def hand(
    world: World, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> Hand:
    """The owner at the command line of a world."""
    return at_hand(world, tmp_path, capsys, monkeypatch)
