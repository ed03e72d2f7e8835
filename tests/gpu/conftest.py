"""One powered-on device for all tests of this area; each test opens a fresh session, which wipes it."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.gpu.compute_parent import forks, held, warm
from tests.gpu.gpu_world import World, make_world

__all__ = ["_powered", "forks", "held", "warm", "world"]


@pytest.fixture(scope="session")
def _powered() -> Iterator[World]:
    world = make_world()
    yield world
    world.device.close()


@pytest.fixture
def world(_powered: World) -> Iterator[World]:
    """A device without a session (the first `set_up` wipes what the test before left)."""
    fresh = World(_powered.device, _powered.hbm, _powered.compute, _powered.now, _powered.faults)
    fresh.now[0] = 1_800_000_000.0
    yield fresh
    assert not fresh.faults
