"""Keys, GPU and files as the laws' plays have them, and an undisturbed session whose commits were counted."""

from __future__ import annotations

import pytest

from tests.crash.play import CrashPlay
from tests.crash.reaper import Reaper
from tests.laws.conftest import theatre
from tests.laws.stage import Theatre

__all__ = ["theatre"]


@pytest.fixture(scope="session")
def untouched(theatre: Theatre, tmp_path_factory: pytest.TempPathFactory) -> CrashPlay:
    """The session in which nobody dies."""
    play = CrashPlay(theatre, tmp_path_factory.mktemp("untouched") / "world", [], reaper=Reaper(None))
    view = play.run().view
    assert view["phase"] == "COMPLETED", view["failure"]
    return play
