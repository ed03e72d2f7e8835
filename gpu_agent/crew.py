"""Threads that share one caller's work over GPU memory, for what lets other threads run while it works. Knows no memory and no work.

The caller is one of them: on a machine of one core nothing changes hands.
"""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor, wait
from typing import Final

from shared.quota import usable_cores

MOST_THREADS: Final = 16


class Crew:
    """`threads`: at most so many, the caller's with them; default: the cores that this process may use."""

    def __init__(self, threads: int | None = None) -> None:
        self.threads = min(threads or usable_cores(), MOST_THREADS)
        self._pool = ThreadPoolExecutor(max(1, self.threads - 1), "crew")

    def __call__(self, work: Callable[[], None], others: int) -> None:
        """Do `work`, and have at most so many others do it too. Who has not begun when the caller is through need not begin any more: on
        busy cores that is later than the caller needs for all of it.

        Raises: what the caller's own did, else what the first of the others that failed did.
        """
        asked: list[Future[None]] = []
        try:
            asked = [self._pool.submit(work) for _ in range(min(others, self.threads - 1))]
            work()
        finally:
            came = [one for one in asked if not one.cancel()]
            wait(came)  # none is at work in memory that the caller goes on with
        for one in came:
            one.result()

    def close(self) -> None:
        """End the threads."""
        self._pool.shutdown(wait=True)
