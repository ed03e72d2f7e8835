"""Who takes records by doorbell in tests of bounce buffers, and how a buffer is asked for."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path

from data_holder.bounce import BounceBuffer
from shared.errors import NotFound, Refused
from shared.wire.bounce import Rung
from shared.wire.copy import CopyAck

SIZE = 1 << 20


class Gpu:
    """Takes records by doorbell: those at odd offsets are refused."""

    def __init__(self) -> None:
        self.taken: list[tuple[str, int]] = []
        self.broken = False
        self.stays = 0
        self.known = {"gpu-0"}
        self.publishes: int | None = None

    async def attend(self, gpu: str, work: Callable[[], None]) -> None:
        if gpu not in self.known:
            raise NotFound("no such GPU")
        self.stays += 1
        await asyncio.to_thread(work)

    def copy(self, name: str, rung: Rung) -> CopyAck:
        """Publishes with a record at `publishes`."""
        for offset, _ in rung.places:
            if self.broken:
                raise RuntimeError("a bug")
            if offset % 2:
                raise Refused("odd", code="copy-refused")
            self.taken.append((name, offset))
        last = self.taken[-1][1]
        return CopyAck(index=last, received=0, published=last == self.publishes)


async def ask(path: Path, length: int = SIZE) -> BounceBuffer:
    return await asyncio.to_thread(BounceBuffer.ask, path, length)
