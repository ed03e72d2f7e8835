"""Fixtures of failures made on purpose: the in-process world's own, and installations of real processes."""

from tests.failures.starting import made, place
from tests.world.fixtures import material, new_world, recorded, unit, world

__all__ = ["made", "material", "new_world", "place", "recorded", "unit", "world"]
