"""What every play needs, made once: keys and files, a powered GPU, the records to search for."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.laws.case import Case, needles
from tests.laws.stage import MovableClock, Play, Theatre
from tests.world.world import shared_unit
from tests.world.world_material import HOLDERS, make_material


@pytest.fixture(scope="session")
def theatre(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Theatre]:
    material, clock = make_material(tmp_path_factory.mktemp("laws") / "installation"), MovableClock()
    unit = shared_unit(material.copy(tmp_path_factory.mktemp("laws-gpu")), clock)
    hay = {name: needles(material.folder / f"holder-{name}") for name in HOLDERS}
    yield Theatre(material, unit, clock, hay)
    unit.power_off()


@pytest.fixture(scope="session")
def undisturbed(theatre: Theatre, tmp_path_factory: pytest.TempPathFactory) -> Case:
    """The session that nobody disturbs; it also warms the GPU's compute up, so that what follows can be held to a time."""
    return Play(theatre, tmp_path_factory.mktemp("undisturbed") / "world", []).run()
