"""Fixtures of the in-process world's tests, which other areas use, too."""

from tests.world.fixtures import hand, material, new_pair, new_world, recorded, unit, world

__all__ = ["hand", "material", "new_pair", "new_world", "recorded", "unit", "world"]
