"""Keys, GPU and files as the laws' plays have them, and an undisturbed session whose commits were counted."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.crash.cells import COLLECTED, EARLY, TOURS, Way
from tests.crash.play import CrashPlay
from tests.crash.reaper import Reaper
from tests.laws.conftest import theatre
from tests.laws.stage import Theatre

__all__ = ["theatre"]


@pytest.fixture(scope="session")
def untouched(theatre: Theatre, tmp_path_factory: pytest.TempPathFactory) -> CrashPlay:
    """The session in which nobody dies."""
    return _undisturbed(theatre, tmp_path_factory.mktemp("untouched") / "world", Way())


@pytest.fixture(scope="session")
def untouched_tours(theatre: Theatre, tmp_path_factory: pytest.TempPathFactory) -> CrashPlay:
    """The same with gradients accumulated."""
    return _undisturbed(theatre, tmp_path_factory.mktemp("untouched-tours") / "world", TOURS)


@pytest.fixture(scope="session")
def untouched_collected(theatre: Theatre, tmp_path_factory: pytest.TempPathFactory) -> CrashPlay:
    """The same with tours collected."""
    return _undisturbed(theatre, tmp_path_factory.mktemp("untouched-collected") / "world", COLLECTED)


@pytest.fixture(scope="session")
def untouched_early(theatre: Theatre, tmp_path_factory: pytest.TempPathFactory) -> CrashPlay:
    """One that ends before its rounds are over and releases the model that was best."""
    play = _undisturbed(theatre, tmp_path_factory.mktemp("untouched-early") / "world", EARLY)
    assert play.case.view["stopped_early"]
    return play


def _undisturbed(theatre: Theatre, folder: Path, way: Way) -> CrashPlay:
    play = CrashPlay(theatre, folder, [], reaper=Reaper(None), way=way)
    view = play.run().view
    assert view["phase"] == "COMPLETED", view["failure"]
    return play
