"""Fixtures of the conformance tests: one living world for all of them."""

from __future__ import annotations

import warnings
from collections.abc import Iterator

import pytest

from shared.errors import EmulationWarning
from tests.conformance.stage import Stage
from tests.world.world_material import make_material


@pytest.fixture(scope="session")
def stage(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stage]:
    """All services, with one session completed and one waiting. Tests must leave `done` as it is."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", EmulationWarning)
        material = make_material(tmp_path_factory.mktemp("material") / "installation")
        stage = Stage(tmp_path_factory.mktemp("stage"), material)
    yield stage
    stage.close()
