"""Tests that stood still for a while and went on: what they noted, shown at the end of the run also where all passed. Knows no service."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

import pytest

_PLACE = "GPUT_TESTS_STANDSTILLS"
"""A folder that a run's workers inherit; a file per worker."""


def note(story: str) -> None:
    """For the end of the run; outside a run it is nobody's."""
    if folder := os.environ.get(_PLACE):
        with Path(folder, str(os.getpid())).open("a") as file:
            file.write(f"{os.environ.get('PYTEST_CURRENT_TEST', 'a test')} {story}\n")


class Notes:
    """The plugin: of the process that the user started, not of its workers, nor of a run that a test starts."""

    def __init__(self) -> None:
        os.environ[_PLACE] = tempfile.mkdtemp(prefix="gput-standstills-")

    @staticmethod
    def inherited() -> bool:
        """Whether another process of this run shows what is noted."""
        return _PLACE in os.environ

    @staticmethod
    def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
        files = sorted(Path(os.environ[_PLACE]).iterdir())
        if files:
            terminalreporter.section("stood still for a while")
        for file in files:
            terminalreporter.write_line(file.read_text())

    @staticmethod
    def pytest_unconfigure() -> None:
        folder = Path(os.environ.pop(_PLACE))
        for file in folder.iterdir():
            file.unlink()
        folder.rmdir()
