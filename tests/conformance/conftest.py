"""Fixtures of the conformance tests: one living world for all of them."""

from __future__ import annotations

import sys
import warnings
from collections.abc import Iterator
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[1] / "world"))
sys.path.insert(0, str(Path(__file__).parent))
from stage import Stage
from world_material import make_material

from shared.errors import EmulationWarning


@pytest.fixture(scope="session")
def stage(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stage]:
    """All services, with one session completed and one waiting. Tests must leave `done` as it is."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", EmulationWarning)
        material = make_material(tmp_path_factory.mktemp("material") / "installation")
        stage = Stage(tmp_path_factory.mktemp("stage"), material)
    yield stage
    stage.close()
