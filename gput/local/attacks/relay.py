"""HOSTILE CODE (attack tour): a man in the middle on one HTTP link, which may watch, hold, repeat or answer calls. Knows no protocol."""

from __future__ import annotations

import asyncio
import contextlib
import socket
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import dataclass
from typing import Any

import httpx2
import uvicorn

from shared.errors import Unavailable

_HOP_BY_HOP = {
    b"connection",
    b"transfer-encoding",
    b"content-length",
    b"accept-encoding",
    b"keep-alive",
    b"date",
    b"server",
}
STARTED_POLL_S = 0.01


@dataclass(frozen=True)
class Call:
    """One request as it came: `path` without the query."""

    method: str
    path: str
    query: str
    headers: tuple[tuple[bytes, bytes], ...]
    body: bytes


@dataclass(frozen=True)
class Answer:
    """One answer."""

    status: int
    headers: tuple[tuple[bytes, bytes], ...]
    body: bytes


Deliver = Callable[[Call], Awaitable[Answer]]
Hook = Callable[[Call, Deliver], Awaitable[Answer]]
"""Gets a call and the way on; delivers it never, once or more often, and answers as it likes."""


class Relay:
    """Listens on a free loopback port and passes everything on to `upstream()` through `hook`. The caller's Host header stays, so that
    signatures over the address still verify where the service knows this address as its own."""

    def __init__(self, upstream: Callable[[], str], hook: Hook) -> None:
        self._upstream, self._hook = upstream, hook
        self._socket = socket.create_server(("127.0.0.1", 0))
        self.url = f"http://127.0.0.1:{self._socket.getsockname()[1]}"
        config = uvicorn.Config(
            self._app, log_config=None, lifespan="off", access_log=False, server_header=False, ws="none", interface="asgi3",
            timeout_graceful_shutdown=1,
        )  # fmt: skip
        self._server = _Quiet(config)
        self._client = httpx2.AsyncClient(timeout=120.0, trust_env=False)
        self._task: asyncio.Task[None] | None = None

    async def start(self) -> None:
        """Listen. Raises: Unavailable."""
        self._task = asyncio.create_task(self._server.serve(sockets=[self._socket]))
        while not self._server.started:
            if self._task.done():
                raise Unavailable("the relay of the attack did not start", code="relay")
            await asyncio.sleep(STARTED_POLL_S)

    async def stop(self) -> None:
        """End every connection."""
        self._server.should_exit = self._server.force_exit = True
        if self._task is not None:
            await self._task
        await self._client.aclose()
        self._socket.close()

    async def _app(self, scope: dict[str, Any], receive: Any, send: Any) -> None:
        body = bytearray()
        while True:
            message = await receive()
            if message["type"] != "http.request":
                return
            body += message.get("body", b"")
            if not message.get("more_body"):
                break
        headers = tuple(pair for pair in scope["headers"] if pair[0] not in _HOP_BY_HOP)
        query = scope["query_string"].decode()
        try:
            answer = await self._hook(Call(scope["method"], scope["path"], query, headers, bytes(body)), self._deliver)
        except httpx2.TransportError:
            answer = Answer(502, (), b"")
        length = str(len(answer.body)).encode()
        head = [*answer.headers, (b"content-length", length)]
        await send({"type": "http.response.start", "status": answer.status, "headers": head})
        await send({"type": "http.response.body", "body": answer.body})

    async def _deliver(self, call: Call) -> Answer:
        url = self._upstream() + call.path + (f"?{call.query}" if call.query else "")
        response = await self._client.request(
            call.method, url, headers=[*call.headers, (b"accept-encoding", b"identity")], content=call.body or None
        )
        kept = tuple((k.lower(), v) for k, v in response.headers.raw if k.lower() not in _HOP_BY_HOP)
        return Answer(response.status_code, kept, response.content)


class _Quiet(uvicorn.Server):
    """Leaves the launcher's signal handlers alone."""

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield
