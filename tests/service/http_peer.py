"""A peer over a real socket that says exactly what a test wants, and our client's way to it."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

import httpx2
import pytest

from shared.service.transport import HttpTransport

OK = b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok"
Handler = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]


class Peer:
    """A listening socket whose connections a handler serves; counts them."""

    def __init__(self, handler: Handler) -> None:
        self._handler, self.connections = handler, 0
        self.url = ""

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        try:
            await self._handler(reader, writer)
        except (ConnectionError, asyncio.IncompleteReadError):
            """The client went away, which several tests are about."""
        finally:
            writer.close()


@asynccontextmanager
async def peer(handler: Handler, tls: ssl.SSLContext | None = None) -> AsyncIterator[Peer]:
    made = Peer(handler)
    server = await asyncio.start_server(made.serve, "127.0.0.1", 0, ssl=tls)
    made.url = f"http{'' if tls is None else 's'}://127.0.0.1:{server.sockets[0].getsockname()[1]}"
    try:
        yield made
    finally:
        server.close()


@asynccontextmanager
async def client(
    patience_s: float = 20.0, idle_s: float = 30.0, tls: ssl.SSLContext | None = None
) -> AsyncIterator[httpx2.AsyncClient]:
    transport = HttpTransport(idle_s=idle_s, tls=tls)
    async with httpx2.AsyncClient(transport=transport, timeout=patience_s, trust_env=False) as made:
        yield made


async def heard(reader: asyncio.StreamReader) -> bytes:
    """A whole request without chunks: its head and its body."""
    head = await reader.readuntil(b"\r\n\r\n")
    lengths = [line for line in head.lower().split(b"\r\n") if line.startswith(b"content-length:")]
    return head + await reader.readexactly(int(lengths[0].split(b":")[1]) if lengths else 0)


def saying(*pieces: bytes, asked: list[bytes] | None = None, close: bool = False) -> Handler:
    """A peer that answers every request with these pieces, each in a segment of its own."""

    async def handle(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while True:
            request = await heard(reader)
            if asked is not None:
                asked.append(request)
            for piece in pieces:
                writer.write(piece)
                await writer.drain()
                await asyncio.sleep(0.005)
            if close:
                return

    return handle


async def answering_early(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """A peer that has had enough of a request once it has read its head."""
    await reader.readuntil(b"\r\n\r\n")
    writer.write(b"HTTP/1.1 413 Too Large\r\ncontent-length: 3\r\n\r\nbig")
    await writer.drain()
    await asyncio.sleep(0.2)


async def mute(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """A peer that reads and says nothing."""
    await reader.readuntil(b"never")


async def deaf(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """A peer that does not even read."""
    await asyncio.sleep(20)


async def abandoned(ask: Callable[[str], Awaitable[bytes]]) -> int:
    """Ask, give up while the peer works on it, and ask again, which must be answered; how many connections that took."""
    begun, slow = asyncio.Event(), asyncio.Event()

    async def handle(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await heard(reader)
        begun.set()
        await slow.wait()
        writer.write(OK)

    async with peer(handle) as there:
        asking = asyncio.ensure_future(ask(there.url))
        await begun.wait()
        asking.cancel()
        with pytest.raises(asyncio.CancelledError):
            await asking
        slow.set()
        assert await ask(there.url) == b"ok"
    return there.connections
