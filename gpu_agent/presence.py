"""Who waits for the GPU to appear at its port: an emulated machine's hot-plug event. Knows the MUX's word; no record, no key and no HTTP.

However many wait, the MUX is looked at when a switch is told of, and only while somebody waits. As long as none was told of, it may be
that nobody ever tells: then it is looked at once a millisecond; and seldom afterwards, for who told may be gone. Whoever is one too many
is answered at once and asks again, as everybody did before there was this.
"""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from typing import Final

from gpu_agent.hardware.mux import Mux, Selected
from shared.service.changes import Changes, Stopping

LOOK_S: Final = 0.001
SELDOM_S: Final = 0.05
MAX_WAITING: Final = 64
MAX_OF_A_PORT: Final = 2
"""A holder has one visit under way, and may have been cut off from a request before."""


class Presence:
    """One GPU's."""

    def __init__(self, mux: Mux) -> None:
        self._mux = mux
        # Of ports that somebody waits at, and of no other: anybody may ask for any name.
        self._waiting: Counter[str] = Counter()
        self._all = 0
        self._changes = Changes()
        self._looking: asyncio.Task[None] | None = None
        self._told = False

    def switched(self) -> None:
        """Somebody says that another port may be selected now. Whoever it is: everybody looks for himself."""
        self._told = True
        self._changes.notify()

    async def arrives(self, port: str, wait_s: float, stopping: Stopping) -> None:
        """Until `port` is selected or the service stops, at most `wait_s` seconds; which of them it was, the caller finds out."""
        if self._waiting[port] >= MAX_OF_A_PORT or self._all >= MAX_WAITING:
            return
        stopping.watch(self._changes)
        until = time.monotonic() + wait_s
        self._waiting[port] += 1
        self._all += 1
        try:
            while not stopping.is_set and (left := until - time.monotonic()) > 0:
                seen = self._changes.version
                selected = self._mux.selected
                if selected.port == port:
                    return
                if self._looking is None:
                    self._looking = asyncio.create_task(self._look(selected), name="hot-plug")
                await self._changes.wait(seen, left)
        finally:
            self._all -= 1
            self._waiting[port] -= 1
            if not self._waiting[port]:
                del self._waiting[port]

    async def _look(self, known: Selected) -> None:
        """Until nobody waits: wake everybody whenever another port is selected."""
        while self._all:
            await asyncio.sleep(SELDOM_S if self._told else LOOK_S)
            if (now := self._mux.selected) != known:
                known = now
                self._changes.notify()
        self._looking = None
