"""Following, leading, following again: one orchestrator process in its deployment. Knows no SQL and not what a term consists of.

A term begins as a start does: everything is built anew from the database. It ends at once when the lease is lost; nothing of it is left
when the next one begins, here or elsewhere.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Generic, Protocol, TypeVar

from orchestrator.lease.fence import not_leader
from orchestrator.lease.keeper import Lease
from shared.errors import ConfigurationError, GputError, Unavailable
from shared.service.changes import Stopping
from shared.service.logging import get_logger
from shared.service.trouble import Trouble

AGAIN_S = 1.0
_log = get_logger("office")


class Term(Protocol):
    """What a leader consists of."""

    async def stop(self) -> None:
        """End cleanly, everything durable."""

    async def abandon(self) -> None:
        """End at once: nothing that is begun now would count."""


T = TypeVar("T", bound=Term)
Begin = Callable[[Stopping], Awaitable[T]]
"""Makes a term and starts it; long-polls of the term end when its `Stopping` is set."""


class Office(Generic[T]):
    """`term` is there while this process leads, and done with starting. `losses`: terms that another, or the clock, ended."""

    def __init__(self, lease: Lease, begin: Begin[T], stopping: Stopping) -> None:
        self._lease, self._begin, self._stopping = lease, begin, stopping
        self.term: T | None = None
        self._ended = Stopping(stopping)
        self._watch: asyncio.Task[str] | None = None
        self._task: asyncio.Task[None] | None = None
        self._refused: ConfigurationError | None = None
        self._trouble = Trouble(_log, "cannot take over")
        self._state = "it has not started yet"
        self.losses = 0

    async def start(self) -> None:
        """Lead at once where nobody else does; else follow, until the lease is free. Raises: what a first term's start raises."""
        if await self._lease.take(reclaim=True) is None:
            await self._lead()
        else:
            self._state = "it stands by, and another orchestrator leads"
            _log.info("standing by: another orchestrator leads")
        self._task = asyncio.create_task(self._run(), name="office")
        self._task.add_done_callback(self._over)

    async def stop(self) -> None:
        """End the term, if there is one, and let go of the lease."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait([self._task])
        if self._watch is not None:
            term, self.term = self.term, None
            if term is not None:
                await term.stop()
            await self._leave(released=True)

    def gate(self, _path: str) -> None:
        """Raises: Unavailable: code `not-leader`, unless this orchestrator leads."""
        if self.term is None:
            raise not_leader(f"this orchestrator does not lead: {self._state}")

    async def check(self) -> None:
        """For readiness. Raises: Unavailable, ConfigurationError: why it does not lead."""
        if self._refused is not None:
            raise self._refused
        if self._task is not None and self._task.done():  # who leads may have lost the lease since
            raise not_leader(f"this orchestrator can lead no more: {self._state}")
        self.gate("")

    async def _lead(self) -> None:
        self._state = "it takes over"
        self._ended = Stopping(self._stopping)
        self._watch = asyncio.create_task(self._lease.lost(), name="lease")
        try:
            self.term = await self._begin(self._ended)
        except BaseException:
            await self._leave(released=False)
            raise

    async def _leave(self, *, released: bool) -> None:
        self._ended.set()
        watch, self._watch = self._watch, None
        if watch is not None:
            watch.cancel()
            await asyncio.wait([watch])
        await self._lease.end(released=released)

    async def _run(self) -> None:
        while True:
            try:
                if self._watch is None:
                    await self._follow()
                elif self._watch.done():
                    await self._abandon(self._watch)
                else:
                    await asyncio.wait([self._watch])
            except Exception as error:
                # Whatever it is, it must not end who waits to lead: the deployment would be without a leader, and nothing would say so.
                self._met(error)
                await asyncio.sleep(AGAIN_S)

    def _over(self, task: asyncio.Task[None]) -> None:
        """From here on nobody follows, and nobody watches the lease: the process stops, or this is a fault that has to be seen."""
        self._state = "it neither leads nor stands by, until it is started again"
        if not task.cancelled():
            _log.error("the office has ended", exc_info=task.exception())

    def _met(self, error: Exception) -> None:
        """It could not take over, or not let go. What this program has no word for is shown by its frames, once for an outage."""
        met, before = error, self._trouble.error
        if not isinstance(met, GputError):
            met = Unavailable(f"a fault in this program ({type(error).__name__})", code="internal")
            if before is None or before.detail != met.detail:
                _log.error("taking over broke", exc_info=error)
            self._state = "it cannot take over; its log says why"
        else:
            self._state = f"it cannot take over: {met.detail}"
        self._trouble.met(met)

    async def _abandon(self, watch: asyncio.Task[str]) -> None:
        self.losses += 1
        term, self.term = self.term, None  # from here on nobody is answered
        self._state = "it was deposed"
        try:
            if term is not None:
                await term.abandon()
        finally:
            await self._leave(released=False)
        self._state = f"it was deposed: {watch.result()}"

    async def _follow(self) -> None:
        pause: float | None = AGAIN_S
        try:
            pause = await self._lease.take()
            if pause is None:
                await self._lead()
            else:
                self._state = "it stands by, and another orchestrator leads"
            self._trouble.over()
        except ConfigurationError as error:
            # Trying again would take the lease from who could use it.
            _log.error("this orchestrator cannot lead", code=error.code, detail=error.detail, remedy=error.remedy)
            self._refused = error
            await asyncio.get_running_loop().create_future()
        except GputError as error:
            self._met(error)
            pause = AGAIN_S if isinstance(error, Unavailable) else 5 * AGAIN_S
        if pause is not None:
            await asyncio.sleep(pause)
