"""Fixtures of the attacks: the in-process world, and a bare device. Each test starts from a wiped GPU."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.gpu.gpu_world import World as Device
from tests.gpu.gpu_world import make_world
from tests.world.fixtures import material, new_world, recorded, unit

__all__ = ["device", "material", "new_world", "recorded", "unit"]


@pytest.fixture(scope="session")
def _powered() -> Iterator[Device]:
    device = make_world()
    yield device
    device.device.close()


@pytest.fixture
def device(_powered: Device) -> Iterator[Device]:
    """A device without a session (the first `set_up` wipes what the test before left)."""
    fresh = Device(_powered.device, _powered.hbm, _powered.compute, _powered.now, _powered.faults)
    fresh.now[0] = 1_800_000_000.0
    yield fresh
    assert not fresh.faults
