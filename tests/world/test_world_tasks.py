"""A wait that was healed by somebody's time limit does not go unseen: it is noted once, and shown when the run has ended."""

from __future__ import annotations

from pathlib import Path
from typing import cast

import pytest

from tests import standstill
from tests.world import world_tasks
from tests.world.world_tasks import Patience


class Terminal:
    """What a run shows at its end."""

    def __init__(self) -> None:
        self.shown: list[str] = []

    def section(self, title: str) -> None:
        self.shown.append(title)

    def write_line(self, line: str) -> None:
        self.shown.append(line)


@pytest.fixture
def noted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Terminal:
    """What would be shown of this test alone."""
    monkeypatch.setenv(standstill._PLACE, str(tmp_path))
    return Terminal()


def _show(terminal: Terminal) -> list[str]:
    standstill.Notes.pytest_terminal_summary(cast("pytest.TerminalReporter", terminal))
    return terminal.shown


async def test_a_long_wait_is_noted_once_and_says_what_for(noted: Terminal, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(world_tasks, "NOTICED_S", -1.0)
    patience = Patience(60.0)
    assert not patience.over
    assert not patience.over
    title, story = _show(noted)
    assert title == "stood still for a while"
    assert story.count("so far") == 1
    assert story.count("test_a_long_wait_is_noted_once_and_says_what_for") == 2, "whose, and at which line it stands"


async def test_of_a_short_wait_nothing_is_said(noted: Terminal) -> None:
    assert Patience(-1.0).over
    assert _show(noted) == []
