"""Fixtures of the attacks: the in-process world, and a bare device. Each test starts from a wiped GPU."""

from __future__ import annotations

from tests.gpu.conftest import _powered
from tests.gpu.conftest import world as device
from tests.world.fixtures import material, new_world, recorded, unit

__all__ = ["_powered", "device", "material", "new_world", "recorded", "unit"]
