"""What every task of this event loop waits for, as text: for a test that waits for longer than it should. Knows no service."""

from __future__ import annotations

import asyncio
import time
from typing import Any

from tests.standstill import note

NOTICED_S = 45.0
"""Beyond what the slowest machine takes for one step of a world, and below the minute after which a lost message is sent again."""


PATIENCE_S = 150.0
"""For what takes seconds on a quiet machine: only a stand-still fails here."""


class Patience:
    """How long a test waits for one thing. What was healed by a time limit of its own is noted, or it would never be seen."""

    def __init__(self, seconds: float) -> None:
        self._began, self._seconds, self._noticed = time.monotonic(), seconds, NOTICED_S

    @property
    def over(self) -> bool:
        """Whether it has lasted."""
        waited = time.monotonic() - self._began
        if waited > self._noticed:
            self._noticed = float("inf")
            note(f"waits for {waited:.0f} s so far\n{waiting()}")
        return waited > self._seconds


def waiting() -> str:
    """A line per task: its name and the chain of coroutines that it stands in, outermost first."""
    return "\n".join(sorted(f"{task.get_name()}: {_chain(task.get_coro())}" for task in asyncio.all_tasks()))


def _chain(coroutine: Any) -> str:
    found = []
    while coroutine is not None and getattr(coroutine, "cr_frame", None) is not None:
        found.append(f"{coroutine.__qualname__}:{coroutine.cr_frame.f_lineno}")
        coroutine = coroutine.cr_await
    return " > ".join(found)
