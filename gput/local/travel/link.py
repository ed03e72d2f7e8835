"""A link between two processes on this machine: a TCP forwarder that paces and counts every byte. Knows no HTTP and reads nothing of it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import suppress
from urllib.parse import urlsplit

from gput.bench.bucket import Bucket, bytes_per_s
from gput.bench.travelling import Traffic

HOST = "127.0.0.1"
FREE_PIECE = 256 * 1024
"""Bytes passed on at a time where no rate counts; else what the bucket passes at once, so that a short message waits for no long piece."""
AT_ONCE_S = 0.001
"""A read that takes less than this had not to wait."""


class Link:
    """Listens on loopback; whoever connects is connected to the target. `target`: its base URL, asked for at each connection.

    All connections share one bucket a direction, as they would share a cable. A round trip is counted when bytes come back on a connection
    on which bytes went up since: of HTTP without pipelining, one for each request.
    """

    def __init__(self, target: Callable[[], str]) -> None:
        self._target = target
        self._up, self._down = Bucket(), Bucket()
        self._bytes_up = self._bytes_down = self._turns = 0
        self._server: asyncio.Server | None = None
        self._connections: set[asyncio.Task[None]] = set()

    @property
    def url(self) -> str:
        """Where it listens."""
        if self._server is None:
            raise RuntimeError("the link is not open")
        return f"http://{HOST}:{self._server.sockets[0].getsockname()[1]}"

    @property
    def traffic(self) -> Traffic:
        """What has crossed it since it was opened."""
        return Traffic(self._bytes_up, self._bytes_down, self._turns)

    def pace(self, mbit: float | None) -> None:
        """So many Mbit/s in each direction from now on; None: not capped."""
        now = asyncio.get_running_loop().time()
        for bucket in (self._up, self._down):
            bucket.set_rate(bytes_per_s(mbit), now)

    async def open(self) -> None:
        """Listen on a free port."""
        self._server = await asyncio.start_server(self._connected, HOST, 0, limit=FREE_PIECE)

    async def close(self) -> None:
        """End every connection."""
        if self._server is not None:
            self._server.close()
        for task in self._connections:
            task.cancel()
        await asyncio.gather(*self._connections, return_exceptions=True)

    async def _connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._connections.add(task)
        try:
            # A side that goes away ends the connection; its other side sees that as it would without us.
            with suppress(OSError, asyncio.CancelledError):
                await self._forward(reader, writer)
        finally:
            self._connections.discard(task)
            writer.close()

    async def _forward(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        where = urlsplit(self._target())
        far_reader, far_writer = await asyncio.open_connection(where.hostname, where.port, limit=FREE_PIECE)
        asked = [False]
        pumps = [
            asyncio.ensure_future(self._pump(reader, far_writer, self._up, lambda size: self._went_up(size, asked))),
            asyncio.ensure_future(self._pump(far_reader, writer, self._down, lambda size: self._came(size, asked))),
        ]
        try:
            await asyncio.gather(*pumps)
        finally:
            for pump in pumps:
                pump.cancel()
            await asyncio.gather(*pumps, return_exceptions=True)
            far_writer.close()

    async def _pump(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, bucket: Bucket, count: Callable[[int], None]
    ) -> None:
        clock = asyncio.get_running_loop().time
        due = clock()
        while True:
            asked = clock()
            piece = await reader.read(FREE_PIECE if bucket.rate is None else int(bucket.depth))
            now = clock()
            if not piece:
                break
            # What lay here already has waited since the piece before it was due: that this process woke late is not the link's doing.
            came = min(due, now) if now - asked < AT_ONCE_S else now
            due = came + bucket.take(len(piece), came)
            if due > now:
                await asyncio.sleep(due - now)
            count(len(piece))
            writer.write(piece)
            await writer.drain()
        if writer.can_write_eof():
            writer.write_eof()

    def _went_up(self, size: int, asked: list[bool]) -> None:
        self._bytes_up += size
        asked[0] = True

    def _came(self, size: int, asked: list[bool]) -> None:
        self._bytes_down += size
        self._turns += asked[0]
        asked[0] = False
