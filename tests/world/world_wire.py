"""A programmable wire between services of one process: every call can be watched, cut, delayed, repeated and changed. Knows no protocol."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

import httpx2

if TYPE_CHECKING:
    from tests.world.world_service import Incarnation, Service

DROPPED_HEADERS = {"transfer-encoding", "content-length"}


@dataclass(frozen=True)
class Call:
    """One request on the wire, as it leaves the client."""

    client: str
    server: str
    method: str
    path: str
    query: str
    headers: tuple[tuple[str, str], ...]
    body: bytes
    url: str

    @property
    def link(self) -> tuple[str, str]:
        return self.client, self.server

    def with_body(self, body: bytes) -> Call:
        return replace(self, body=body)

    def at_once(self) -> Call:
        """The same without its query: a record that would wait for the GPU at its port is then judged as it arrives."""
        return replace(self, query="", url=self.url.partition("?")[0])


@dataclass
class Exchange:
    """A call and what came of it; `status` 0: no answer reached the client."""

    call: Call
    status: int = 0
    answer: bytes = b""
    answer_headers: tuple[tuple[str, str], ...] = ()


Deliver = Callable[[Call], Awaitable[httpx2.Response]]
Hook = Callable[[Call, Deliver], Awaitable[httpx2.Response]]
"""Gets a call and the way on; delivers it never, once, twice or changed, and answers or raises a transport error."""


def cut(call: Call) -> httpx2.Response:
    """The connection breaks before the request arrives."""
    raise httpx2.ConnectError(f"cut: {call.client} to {call.server}")


async def lose_answer(call: Call, deliver: Deliver) -> httpx2.Response:
    """The request arrives, its answer does not."""
    await deliver(call)
    raise httpx2.ReadError(f"answer lost: {call.client} to {call.server}")


@dataclass
class Wire:
    """All links. `hooks` run outermost first; `transcript` has every exchange as the server saw it. `patient`: clients whose calls wait for
    their answers without an end."""

    services: dict[str, Service] = field(default_factory=dict)
    hooks: list[Hook] = field(default_factory=list)
    transcript: list[Exchange] = field(default_factory=list)
    patient: set[str] = field(default_factory=set)

    async def carry(self, call: Call) -> httpx2.Response:
        """Take one call through the hooks to its service."""

        async def through(hooks: list[Hook], call: Call) -> httpx2.Response:
            if not hooks:
                return await self._deliver(call)
            return await hooks[0](call, lambda changed: through(hooks[1:], changed))

        return await through(list(self.hooks), call)

    async def _deliver(self, call: Call) -> httpx2.Response:
        exchange = Exchange(call)
        self.transcript.append(exchange)
        response = await self.services[call.server].handle(call)
        exchange.status, exchange.answer = response.status_code, response.content
        exchange.answer_headers = tuple(response.headers.items())
        return response

    def bodies(self, *parties: str) -> list[bytes]:
        """Every body, both ways, on the links between services whose names contain these two words (all links without words)."""
        found = []
        for exchange in self.transcript:
            names = exchange.call.link
            if not parties or all(any(word in name for name in names) for word in parties):
                found += [exchange.call.body, exchange.answer, exchange.call.url.encode()]
        return found

    def story(self) -> str:
        """The last exchanges, and every one that was refused or is unanswered, a line each."""
        told = [
            (e, f"{e.call.client} {e.call.method} {e.call.server}{e.call.path} {e.status}") for e in self.transcript
        ]
        refused = [f"{line} {e.answer[:300]!r}" for e, line in told if e.status == 0 or e.status >= 400]
        return "\n".join([*refused[-40:], "...", *(line for _, line in told[-30:])])

    def calls(self, client: str, server: str, part: str = "") -> list[Exchange]:
        """Exchanges of one link whose path contains `part`."""
        wanted = (client, server)
        return [e for e in self.transcript if e.call.link == wanted and part in e.call.path]


class Link(httpx2.AsyncBaseTransport):
    """One client's way to one server. A client that was killed has no ways any more."""

    def __init__(self, wire: Wire, client: str, server: str, owner: Incarnation | None = None) -> None:
        self._wire, self._client, self._server, self._owner = wire, client, server, owner

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        body = await request.aread()
        if self._owner is not None and self._owner.dead:
            raise httpx2.ConnectError("this process was killed")
        headers = tuple((k, v) for k, v in request.headers.items() if k not in DROPPED_HEADERS)
        query = request.url.query.decode()
        call = Call(
            self._client, self._server, request.method, request.url.path, query, headers, bytes(body), str(request.url)
        )
        timeout = request.extensions.get("timeout", {}).get("read") if self._client not in self._wire.patient else None
        try:
            async with asyncio.timeout(timeout):
                answer = await self._wire.carry(call)
        except TimeoutError:
            raise httpx2.ReadTimeout(f"{self._server} did not answer") from None
        if self._owner is not None and self._owner.dead:
            raise httpx2.ReadError("this process was killed")
        return httpx2.Response(answer.status_code, headers=answer.headers, content=answer.content, request=request)
