"""Threads that share one caller's work over GPU memory, for what lets other threads run while it works. Knows no memory and no work.

The caller is one of them: on a machine of one core nothing changes hands.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from typing import Final, TypeVar

T = TypeVar("T")

MOST_THREADS: Final = 16


class Crew:
    """`threads`: at most so many, the caller's with them; default: the cores that this process may use."""

    def __init__(self, threads: int | None = None) -> None:
        self.threads = min(threads or len(os.sched_getaffinity(0)), MOST_THREADS)
        self._pool = ThreadPoolExecutor(max(1, self.threads - 1), "crew")

    def __call__(self, parts: Sequence[Callable[[], T]]) -> list[T]:
        """What each part gives, in order, once all are over. Raises: what the first of them that failed did."""
        others: list[Future[T]] = []
        try:
            others = [self._pool.submit(part) for part in parts[1:]]
            first = [part() for part in parts[:1]]
        finally:
            wait(others)  # none is at work in memory that the caller goes on with
        return first + [other.result() for other in others]

    def close(self) -> None:
        """End the threads."""
        self._pool.shutdown(wait=True)
