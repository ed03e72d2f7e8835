"""What the inbox says of sessions that were never offered here: done one after another, and no more of it kept than there is room for.

Any number of names can be made up in one answer, and each would have a worker of its own, with a call of its own. Nothing can be done for
them but to say of an end that it was heard; what is passed over is said again at the orchestrator's next start.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Final

from shared.service.logging import get_logger
from shared.wire.visit import InboxItem

MOST: Final = 1024
_log = get_logger("data_holder.strangers")


class Strangers:
    """`run` lives as long as the service; what is taken in before waits for it."""

    def __init__(self, do: Callable[[InboxItem], Awaitable[None]]) -> None:
        self._do = do
        self._waiting: asyncio.Queue[InboxItem] = asyncio.Queue(MOST)
        self._passed_over = 0

    def take(self, item: InboxItem) -> None:
        """To be done behind what waits already; passed over where that is too much."""
        try:
            self._waiting.put_nowait(item)
        except asyncio.QueueFull:
            if not self._passed_over:
                _log.warning(
                    "the inbox names more sessions that were never offered here than are looked at", waiting=MOST
                )
            self._passed_over += 1

    async def run(self) -> None:
        """`do` raises nothing."""
        while True:
            await self._do(await self._waiting.get())
            if self._passed_over and self._waiting.empty():
                _log.warning("sessions that were never offered here were passed over", items=self._passed_over)
                self._passed_over = 0
