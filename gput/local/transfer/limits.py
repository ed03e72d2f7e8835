"""What a transfer cannot beat, measured beside it: cipher, memory, and the agent's server without an agent. Knows no GPU and no dataset."""

from __future__ import annotations

import mmap
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path

from data_holder.carriers import HttpCarrier
from data_holder.links import GpuLink, LinkCounters
from data_holder.settings import HolderSettings
from gput.local.installation import to_toml
from gput.local.process import Service
from gput.local.transfer.memory_limit import ThroughMemory
from gput.local.transfer.one_core import cipher
from gput.local.transfer.stand import GPU, HOLDER
from shared.claims.visit import MAX_CHUNK_BYTES
from shared.names import holder_port
from shared.service.http import Peers
from shared.wire.copy import DATA, TAG_BYTES, CopyHeader, pack_header

TIMEOUT_S = 60.0
PREPARE_BYTES = int(HolderSettings.model_fields["prepare_bytes"].default)
Bare = Callable[[int], Awaitable[float]]


class Limits:
    """What cannot be beaten, as the machine is at the moment. `bare`: seconds of so many bytes to the bare server."""

    def __init__(self, bare: Bare, memory: ThroughMemory) -> None:
        self._bare, self._memory = bare, memory

    async def now(self, length: int, *, http: bool) -> tuple[float, float]:
        """Bytes a second: of the link with a visit of so many, and from memory to memory."""
        core = cipher(1)
        limit = length / await self._bare(length) if http else min(core.seal, core.open)
        return limit, self._memory.rate()


@asynccontextmanager
async def bare(folder: Path, peers: Peers, file: Path) -> AsyncIterator[Bare]:
    """Seconds in which the same server and client move so many bytes of a file, in requests of the same size as a
    visit's, unsealed. Sent as they lie there: a chunk that is sent again and again lies in a cache, as no dataset does."""
    config = folder / "plain.toml"
    config.write_text(to_toml({"die_with_parent": True, "log_format": "json", "data_dir": folder / "plain"}))
    server = Service("plain", ["-m", "gput.local.transfer.plain", "--config", str(config)], {}, folder / "plain.log")
    await server.start()
    try:
        link, port = GpuLink(peers.peer(server.url, "the bare server"), LinkCounters()), holder_port(HOLDER)
        with file.open("rb") as stream:
            lying = memoryview(mmap.mmap(stream.fileno(), 0, access=mmap.ACCESS_READ))
        size = min(MAX_CHUNK_BYTES, len(lying))
        head, tag = memoryview(pack_header(CopyHeader(DATA, 1, 1, 0, 1, size))), memoryview(bytes(TAG_BYTES))
        chunks = [lying[at : at + size] for at in range(0, len(lying) - size + 1, size)]
        most = min(HttpCarrier.limit, PREPARE_BYTES // (len(head) + size + len(tag)))  # as many at once as a holder has

        async def once(length: int) -> float:
            began, count = time.perf_counter(), max(1, length // size)
            for at in range(0, count, most):
                sent = range(at, min(at + most, count))
                records = [part for number in sent for part in (head, chunks[number % len(chunks)], tag)]
                await link.leave("copy", GPU, port, *records, timeout_s=TIMEOUT_S)
            return time.perf_counter() - began

        await once(PREPARE_BYTES)
        yield once
    finally:
        await server.stop()
