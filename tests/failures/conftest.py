"""Fixtures of failures made on purpose: the in-process world's own, and installations of real processes."""

from tests.world.fixtures import material, new_world, recorded, unit, world

__all__ = ["material", "new_world", "recorded", "unit", "world"]
