"""Fixtures of the conformance tests: one living world for all of them."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.conformance.stage import Stage
from tests.world.world_stage import on_stage


@pytest.fixture(scope="session")
def stage(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stage]:
    """All services, with one session completed and one waiting. Tests must leave `done` as it is."""
    with on_stage(Stage, tmp_path_factory) as stage:
        yield stage
