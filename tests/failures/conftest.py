"""Fixtures of failures made on purpose: the in-process world's own, and installations of real processes."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path

WORLD = Path(__file__).parents[1] / "world"
sys.path[:0] = [str(WORLD), str(Path(__file__).parent)]

# The world's fixtures are defined once, beside the world; a conftest has no importable name of its own.
_spec = importlib.util.spec_from_file_location("world_fixtures", WORLD / "conftest.py")
assert _spec is not None
assert _spec.loader is not None
_fixtures = importlib.util.module_from_spec(_spec)
_spec.loader.exec_module(_fixtures)

material, unit, new_world, world, recorded = (
    getattr(_fixtures, name) for name in ("material", "unit", "new_world", "world", "recorded")
)
