"""Every session that waits for its holders' shares, each with a task of its own. Knows no share and no route."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

from orchestrator.runner.house import House
from orchestrator.runner.key_recovery import KeyRecovery
from shared.errors import Conflict, GputError, Unavailable
from shared.service.logging import bind_afresh, get_logger

_log = get_logger("recovery")


class Recoveries:
    """By session. `on_recovered` is called for each that can go on."""

    def __init__(self, house: House, on_recovered: Callable[[], Awaitable[None]]) -> None:
        self._house, self._on_recovered = house, on_recovered
        self._open: dict[str, KeyRecovery] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._refused: set[str] = set()

    async def look(self) -> None:
        """Begin asking for every live session whose key is away. Raises: Unavailable."""
        for session in sorted(self._house.catalogue.away - self._open.keys() - self._refused):
            try:
                recovery = await KeyRecovery.of(self._house, session)
            except Unavailable:
                raise
            except GputError as error:
                self._refused.add(session)
                _log.error("session refused", session=session, code=error.code, detail=error.detail)
                continue
            if session not in self._open:  # another look may have been faster
                self._open[session] = recovery
                with bind_afresh(session=session):
                    task = asyncio.create_task(self._drive(recovery), name=f"key of {session}")
                self._tasks.add(task)
                task.add_done_callback(self._tasks.discard)

    async def _drive(self, recovery: KeyRecovery) -> None:
        if await recovery.drive():
            self._open.pop(recovery.id, None)
            self._house.catalogue.away.discard(recovery.id)
            recovery.changes.notify()
            await self._on_recovered()

    def of(self, session: str) -> KeyRecovery | None:
        """The session's, while it waits."""
        return self._open.get(session)

    def wanted(self, session: str) -> KeyRecovery:
        """As `of`. Raises: Conflict: nobody's share is wanted."""
        found = self._open.get(session)
        if found is None:
            raise Conflict("No share of this session's key is wanted", code="share-not-wanted",
                           remedy="Wait for share_wanted in the inbox.")  # fmt: skip
        return found

    def asks(self, holder: str) -> list[KeyRecovery]:
        """Those that want this holder's share."""
        return [recovery for recovery in self._open.values() if recovery.wants(holder)]

    async def stop(self) -> None:
        """Ask nobody any more; what was given is forgotten."""
        tasks = {*self._tasks}
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks)
