"""Fixtures of the attacks: the in-process world, and a bare device. Each test starts from a wiped GPU."""

from __future__ import annotations

import asyncio
import os
import random

import pytest

from gpu_agent.hardware import launch
from gpu_agent.unit import GpuUnit
from tests.gpu.conftest import _powered
from tests.gpu.conftest import world as device
from tests.world.fixtures import material, new_world, recorded, unit
from tests.world.world import World
from tests.world.world_material import Material

__all__ = ["PAIR", "SEED", "_powered", "device", "material", "new_world", "recorded", "undisturbed", "unit"]
PAIR = ("city", "harbour")
"""The holders of a session that costs half as much as the usual one."""
SEED = int(os.environ.get("ADVERSARY_SEED", "11"))
"""Every choice of the hostile platform and of hostile holders is drawn from it: which message, when, which bit, which edge."""


@pytest.fixture(autouse=True)
def drawn_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each private training draws other noise, and in every run the same: what is judged by chance must not fail by chance."""
    draws = random.Random(SEED)
    monkeypatch.setattr(launch, "noise_key", lambda *_: draws.randbytes(32))


@pytest.fixture(scope="session")
def undisturbed(material: Material, unit: GpuUnit, tmp_path_factory: pytest.TempPathFactory) -> str:
    """The digest of the model that the pair's session ends with when nobody disturbs it."""

    async def run() -> str:
        async with World(tmp_path_factory.mktemp("pair") / "world", material, unit, holders=PAIR) as world:
            view = await world.completed(await world.submit())
            return str(view["model"]["digest"])

    return asyncio.run(run())
