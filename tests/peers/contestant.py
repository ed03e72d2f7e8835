"""What the measurement asks of whoever takes part. Knows no contestant and no figure."""

from __future__ import annotations

import re
from enum import StrEnum
from pathlib import Path
from typing import Protocol

from tests.peers.traffic import End


class State(StrEnum):
    """How a job stands, by its own system's word."""

    RUNNING = "running"
    DONE = "done"
    FAILED = "failed"


class Contestant(Protocol):
    """One installation with one job, in a folder of its own."""

    @property
    def served(self) -> tuple[End, ...]:
        """Where its parties reach one another, over a network in a real installation; none: everything counts."""
        ...

    def prepare(self) -> None:
        """Make what is made once, before anything runs: keys, configuration, the job's own file."""
        ...

    def start(self) -> None:
        """Start every party's processes and submit the job."""
        ...

    def visits(self) -> int:
        """Rounds of single holders that were trained so far; one that was trained twice counts twice."""
        ...

    def state(self) -> State:
        """How the job stands. Cheap enough to ask twice a second."""
        ...

    def settled(self) -> State:
        """As `state`, and certain of failure, too; may take seconds."""
        ...

    def word(self) -> str:
        """How its own tool shows the job to people now; letters, digits and blanks."""
        ...

    def model(self) -> Path:
        """The finished model's file. Only after DONE."""
        ...

    def counters(self) -> dict[str, float]:
        """Figures that only its own services can tell. Only after DONE."""
        ...

    def kill(self) -> None:
        """SIGKILL the server: every process of the party that coordinates."""
        ...

    def restart(self) -> None:
        """Start the server again as an operator would, over what it kept; returns once its start was asked for."""
        ...

    def close(self) -> None:
        """Let go of what is no process."""
        ...


def lines(path: Path) -> int:
    """Of a file, 0 where there is none yet."""
    return path.read_text().count("\n") if path.exists() else 0


def plain(text: str) -> str:
    """A status as a result's file may state it."""
    return " ".join(re.findall(r"[A-Za-z0-9]+", text)).lower()[:80] or "unknown"
