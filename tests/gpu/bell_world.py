"""Who takes records by doorbell in tests of bounce buffers, and how a buffer is asked for."""

from __future__ import annotations

import asyncio
import threading
from pathlib import Path

from data_holder.bounce import BounceBuffer
from shared.errors import NotFound, Refused
from shared.wire.bounce import Rung
from shared.wire.copy import Copied

SIZE = 1 << 20


class Gpu:
    """Takes records by doorbell: those at odd offsets are refused."""

    def __init__(self) -> None:
        self.taken: list[tuple[str, int]] = []
        self.broken = False
        self.known = {"gpu-0"}
        self.waited, self.waiting = list[int](), threading.Event()
        self.there = threading.Event()
        self.there.set()
        self.copying, self.goes_on = threading.Event(), threading.Event()
        self.goes_on.set()

    def arrives(self, rung: Rung) -> None:
        """At every port once it is `there`."""
        self.waited.append(rung.wait_ms)
        self.waiting.set()
        self.there.wait(rung.wait_ms / 1000)

    async def waits(self) -> None:
        """Until a ring waits for the GPU."""
        assert await asyncio.to_thread(self.waiting.wait, 5.0)

    def copy(self, name: str, rung: Rung) -> Copied:
        self.copying.set()
        self.goes_on.wait(60)
        if rung.gpu not in self.known:
            raise NotFound("no such GPU")
        for offset, _ in rung.places:
            if self.broken:
                raise RuntimeError("a bug")
            if offset % 2:
                raise Refused("odd", code="copy-refused")
            self.taken.append((name, offset))
        return Copied(self.taken[-1][1], 0, False)


async def ask(path: Path, length: int = SIZE) -> BounceBuffer:
    return await asyncio.to_thread(BounceBuffer.ask, path, length)
