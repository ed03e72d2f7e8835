"""A server with our guarded protocol on a socket of this machine, whose application reads bodies past the parser as a test says."""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

import pytest
import uvicorn
import uvloop
from uvicorn.server import ServerState

from shared.service.bulk import BULK, BulkBody
from shared.service.connection import guarded

GET = b"GET /next HTTP/1.1\r\nhost: here\r\n\r\n"
LOOPS = {"uvloop": uvloop.new_event_loop, "asyncio": asyncio.new_event_loop}
each_loop = pytest.mark.parametrize("loop", LOOPS)
Serve = Callable[[BulkBody | None, Any], Awaitable[bytes]]


def run(loop: str, act: Coroutine[Any, Any, None]) -> None:
    """On a loop of this kind: they read in ways of their own."""
    with asyncio.Runner(loop_factory=LOOPS[loop]) as runner:
        runner.run(_in_time(act))


async def _in_time(act: Coroutine[Any, Any, None]) -> None:
    async with asyncio.timeout(60):
        await act


@dataclass
class Server:
    """Where it is, what its requests raised, and how many are under way."""

    port: int = 0
    faults: list[BaseException] = field(default_factory=list)
    fault: asyncio.Event = field(default_factory=asyncio.Event)
    connections: set[Any] = field(default_factory=set)

    @asynccontextmanager
    async def connected(
        self, sender: str = "127.0.0.1"
    ) -> AsyncIterator[tuple[asyncio.StreamReader, asyncio.StreamWriter]]:
        reader, writer = await asyncio.open_connection("127.0.0.1", self.port, local_addr=(sender, 0))
        try:
            yield reader, writer
        finally:
            writer.transport.abort()


@asynccontextmanager
async def serving(
    serve: Serve, keep_alive_s: int = 5, unparsed: Callable[[str, int], None] | None = None
) -> AsyncIterator[Server]:
    """`serve` is given a request's body past the parser, where there is one, and the usual way; what it gives is the answer."""
    state = ServerState()
    found = Server(connections=state.connections)

    async def app(scope: Any, receive: Any, send: Any) -> None:
        try:
            content = await serve(scope.get(BULK), receive)
        except BaseException as error:
            found.faults.append(error)
            found.fault.set()
            raise
        length = str(len(content)).encode()
        await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", length)]})
        await send({"type": "http.response.body", "body": content})

    config = uvicorn.Config(app, lifespan="off", log_config=None, ws="none", timeout_keep_alive=keep_alive_s)
    config.load()
    protocol = guarded(unparsed=unparsed)
    server = await asyncio.get_running_loop().create_server(
        lambda: protocol(config=config, server_state=state, app_state={}), "127.0.0.1", 0
    )
    found.port = server.sockets[0].getsockname()[1]
    try:
        yield found
    finally:
        server.close()
        for connection in list(state.connections):
            connection.transport.abort()
        for task in list(state.tasks):
            task.cancel()
        await asyncio.gather(*state.tasks, return_exceptions=True)


def post(body: bytes, *headers: str) -> bytes:
    """A request that states its body's length."""
    lines = ["POST /bulk HTTP/1.1", "host: here", f"content-length: {len(body)}", *headers]
    return "\r\n".join(lines).encode() + b"\r\n\r\n" + body


async def answer(reader: asyncio.StreamReader) -> tuple[int, bytes]:
    """Status and body of the next answer."""
    head = (await reader.readuntil(b"\r\n\r\n")).decode().lower()
    length = int(head.partition("content-length: ")[2].split("\r\n")[0])
    return int(head.split()[1]), await reader.readexactly(length)


async def all_of(bulk: BulkBody | None, receive: Any, *, piece: int = 70_000) -> bytes:
    """The hash of all of it."""
    assert bulk is not None
    memory, hasher = bytearray(piece), hashlib.sha256()
    while bulk.left:
        view = memoryview(memory)[: min(piece, bulk.left)]
        await bulk.into(view)
        hasher.update(view)
    return hasher.digest()
