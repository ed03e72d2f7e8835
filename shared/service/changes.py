"""Waking those who wait: long-polls and event streams, all of which end at once when the service stops. Knows no data.

Everything here belongs to one event loop; a thread wakes waiters by `loop.call_soon_threadsafe(changes.notify)`.
"""

from __future__ import annotations

import asyncio
import contextlib
import weakref

ENDED_PAUSE_S = 0.01


class Changes:
    """A version number that grows, and those who wait for it to."""

    def __init__(self, stopping: Stopping | None = None) -> None:
        self.version = 0
        self._stopping = stopping
        self._waiters: set[asyncio.Future[None]] = set()
        if stopping is not None:
            stopping.watch(self)

    @property
    def ended(self) -> bool:
        """Whether the service is stopping: nobody should wait again."""
        return self._stopping is not None and self._stopping.is_set

    def notify(self) -> None:
        """Something changed: the version grows and every waiter returns."""
        self.version += 1
        self.wake()

    def wake(self) -> None:
        """Every waiter returns; the version stays."""
        for waiter in self._waiters:
            if not waiter.done():
                waiter.set_result(None)

    async def wait(self, seen: int, timeout_s: float) -> int:
        """The version, at once if it differs from `seen`, else after a change, `timeout_s` or the service's stop.

        Read `version` before reading the data, then wait on it: no change in between is missed.
        """
        if self.version != seen or timeout_s <= 0:
            return self.version
        if self.ended:
            # Never without letting others run: whoever waits in a loop for something else would hold up the stop itself.
            await asyncio.sleep(min(timeout_s, ENDED_PAUSE_S))
            return self.version
        waiter: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiters.add(waiter)
        try:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(timeout_s):
                    await waiter
        finally:
            self._waiters.discard(waiter)
        return self.version


class Stopping:
    """Set once, when the service begins to stop; wakes every `Changes` that was made with it. A `parent` that stops takes it along."""

    def __init__(self, parent: Stopping | None = None) -> None:
        self.is_set: bool = parent is not None and parent.is_set
        self._watched: weakref.WeakSet[Changes] = weakref.WeakSet()
        self._parts: weakref.WeakSet[Stopping] = weakref.WeakSet()
        self._own = Changes()
        if parent is not None:
            parent._parts.add(self)

    def watch(self, changes: Changes) -> None:
        """`changes` wakes its waiters when this is set."""
        self._watched.add(changes)

    def set(self) -> None:
        """Begins the stop."""
        self.is_set = True
        self._own.notify()
        for changes in list(self._watched):
            changes.wake()
        for part in list(self._parts):
            part.set()

    async def wait(self, timeout_s: float) -> bool:
        """Waits for the stop, at most `timeout_s`; whether it has begun."""
        if not self.is_set:
            await self._own.wait(self._own.version, timeout_s)
        return self.is_set
