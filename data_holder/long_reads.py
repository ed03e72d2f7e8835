"""Threads of their own for what reads a dataset from end to end: scanning, converting, hashing. Knows no session.

Each may take hours. On the threads that everybody shares a few of them would hold up visits that only want to open what is there already,
until their leases run out; and a process cannot end before its threads do, so each asks again and again whether this holder stops.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextvars import copy_context
from typing import TypeVar

from data_holder.datasets import GoOn
from shared.errors import Unavailable

T = TypeVar("T")
AT_ONCE = 2
"""More would only take the disk and the cores from one another, and from visits."""


class LongReads:
    """The others wait their turn. `stopping`: whether this holder stops; then what runs ends, and nothing begins."""

    def __init__(self, stopping: Callable[[], bool]) -> None:
        self._stopping = stopping
        self._threads = ThreadPoolExecutor(AT_ONCE, thread_name_prefix="dataset")

    async def run(self, act: Callable[[GoOn], T]) -> T:
        """What `act` gives, which reads a dataset whole and asks what it is given at each block.

        Raises:
            Unavailable: `stopping`. Whatever `act` raises.
        """
        self._go_on()
        return await asyncio.get_running_loop().run_in_executor(self._threads, copy_context().run, self._begun, act)

    async def if_needed(self, act: Callable[[GoOn], T]) -> T:
        """What `act` gives: at once where everything was made before, else as `run` has it. Raises: as `run`."""
        try:
            return await asyncio.to_thread(act, _too_long)
        except _TooLong:
            pass
        return await self.run(act)

    def _begun(self, act: Callable[[GoOn], T]) -> T:
        self._go_on()  # it may have waited long for its turn
        return act(self._go_on)

    def _go_on(self) -> None:
        if self._stopping():
            raise Unavailable("the data holder stops; the dataset was not read to its end", code="stopping")

    def close(self) -> None:
        """Wait for what runs, once `stopping` says so: a block's time."""
        self._threads.shutdown()


class _TooLong(Exception):
    """It has to read a dataset whole."""


def _too_long() -> None:
    raise _TooLong
