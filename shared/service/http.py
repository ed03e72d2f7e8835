"""Calls to the other services: one client per peer, retries where repeating is safe, answers as results or errors. Knows no peer's API.

A connection error is retried with growing pauses when repeating changes nothing: GET, HEAD, PUT, DELETE, or any call with an
Idempotency-Key. Every attempt is signed anew. A timeout after sending is never retried at the same address: the peer may still be
at work. A peer may have several addresses (`shared.service.ways`): who cannot be reached, or does not lead, is passed over.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from functools import lru_cache
from typing import Any, Self

import httpx2

from shared.canonical import json_bytes, json_value
from shared.errors import BadRequest, GputError, Unavailable
from shared.service.act_key import check_act_key
from shared.service.answers import Answer, answers_within, refusal_body
from shared.service.clock import Entropy
from shared.service.plain_client import Asks, Body, Call, PlainClient
from shared.service.printable import printable
from shared.service.problem_reader import MAX_PROBLEM_BYTES, error_of, retry_after_s
from shared.service.tracing import outgoing
from shared.service.transport import HttpTransport
from shared.service.unanswered import unanswered, unintelligible
from shared.service.ways import Way, Ways, addresses

ATTEMPTS = 4
MAX_ANSWER_BYTES = (
    128 * 1024 * 1024
)  # what is read at once; the largest is a batch's frame (shared.wire.gpu); streams have their readers' bounds
FIRST_PAUSE_S = 0.05
LONGEST_PAUSE_S = 1.0
# Below the server's keep-alive (75 s): the side that sends must be the one that closes, or a request meets a closing connection.
KEEP_ALIVE_S = 30.0

_REPEATABLE = {"GET", "HEAD", "PUT", "DELETE"}
MAX_LOCATION = 200

# The request did not reach the peer, or its connection broke before an answer began.
_NEVER_SENT = (httpx2.ConnectError, httpx2.ConnectTimeout)
_CONNECTION_ERRORS = (
    httpx2.ConnectError,
    httpx2.ConnectTimeout,
    httpx2.ReadError,
    httpx2.WriteError,
    httpx2.RemoteProtocolError,
)

Around = Callable[[str, PlainClient], Asks]
Sleep = Callable[[float], Awaitable[None]]


class Peers:
    """The peers of one service. Transports can be given per base URL, so that several services talk inside one process."""

    def __init__(
        self,
        *,
        timeout_s: float = 10.0,
        transports: Mapping[str, httpx2.AsyncBaseTransport] | None = None,
        entropy: Entropy = os.urandom,
        sleep: Sleep = asyncio.sleep,
        traced: bool = False,
    ) -> None:
        """`traced`: requests on behalf of a visit say so, by W3C `traceparent`."""
        self._timeout_s, self._traced = timeout_s, traced
        self._transports = {url.rstrip("/"): transport for url, transport in (transports or {}).items()}
        self._entropy = entropy
        self._sleep = sleep
        self._clients: list[PlainClient] = []

    def peer(
        self, base_url: str, name: str, *, auth: httpx2.Auth | None = None, around: Around | None = None
    ) -> PeerClient:
        """A client of the service at `base_url` (or one of several, comma-separated), called `name` in errors.

        Args:
            auth: signs its requests. around: who asks in the place of each address's own client, by way of that.

        Raises:
            BadRequest: not an http or https address.
        """
        clients = [(address, self._client(address, auth)) for address in addresses(base_url, name)]
        ways = [Way(address, around(address, own) if around is not None else own) for address, own in clients]
        return PeerClient(Ways(ways), name, self._entropy, self._sleep, traced=self._traced)

    def _client(self, base_url: str, auth: httpx2.Auth | None) -> PlainClient:
        transport = self._transports.get(base_url) or HttpTransport(idle_s=KEEP_ALIVE_S)
        client = PlainClient(transport, auth=auth, timeout_s=self._timeout_s)
        self._clients.append(client)
        return client

    async def close(self) -> None:
        """Closes every client."""
        while self._clients:
            await self._clients.pop().close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()


class PeerClient:
    """Calls to one peer. A refusal comes back as the error that the peer raised, with its code."""

    def __init__(self, ways: Ways, name: str, entropy: Entropy, sleep: Sleep, *, traced: bool = False) -> None:
        self.name, self._traced = name, traced
        self._ways = ways
        self._entropy = entropy
        self._sleep = sleep

    async def request(
        self,
        method: str,
        path: str,
        *,
        json: Any = None,
        content: Body | None = None,
        headers: Mapping[str, str] | None = None,
        params: Mapping[str, str | int] | None = None,
        idempotency_key: str | None = None,
        timeout_s: float | None = None,
        attempts: int | None = None,
    ) -> Answer:
        """One call; the answer is 2xx.

        Args:
            timeout_s: for a long-poll, longer than the wait asked for.
            attempts: at most so many tries; default 4 where repeating is safe, else 1; for each of the peer's addresses.

        Raises:
            Unavailable: codes `peer-unreachable`, `peer-timeout`. GputError: what the peer answered, its code kept.
        """
        body, all_headers = _encoded(json, content, headers, idempotency_key)
        if self._traced:
            all_headers |= outgoing()
        replayable = body is None or isinstance(body, bytes)
        repeatable = replayable and (method in _REPEATABLE or idempotency_key is not None)
        tries = ((attempts or ATTEMPTS) if repeatable else 1) * (len(self._ways) if replayable else 1)
        extensions = answers_within(MAX_ANSWER_BYTES)
        for attempt in range(1, tries + 1):
            way = self._ways.now
            try:
                url = _address(way.url, path)
                response = await way.client.ask(Call(method, url, body, all_headers, params, timeout_s, extensions))
            except httpx2.TransportError as error:
                self._ways.failed(way)
                if attempt == tries or not self._worth_more(error, attempt, repeatable=repeatable):
                    raise unanswered(error, self.name, way.url, f"{method} {path}") from error
            else:
                if response.status_code < 300:
                    return response
                refusal = self._refused(way, response, response.content)
                if attempt == tries or not self._elsewhere(refusal, response, repeatable=repeatable):
                    raise refusal
            await self._sleep(self._pause_s(attempt))
        raise AssertionError("the last try returns or raises")

    async def get_json(self, path: str, **options: Any) -> Any:
        """GET; the JSON value of the answer, None for an empty one. Raises: as `request`."""
        return self.json_of(await self.request("GET", path, **options))

    async def post_json(self, path: str, body: Any, **options: Any) -> Any:
        """POST of a JSON value; the JSON value of the answer. Raises: as `request`."""
        return self.json_of(await self.request("POST", path, json=body, **options))

    async def put_json(self, path: str, body: Any, **options: Any) -> Any:
        """PUT of a JSON value; the JSON value of the answer. Raises: as `request`."""
        return self.json_of(await self.request("PUT", path, json=body, **options))

    async def post_bytes(self, path: str, content: bytes, content_type: str, **options: Any) -> bytes:
        """POST of bytes; the bytes of the answer. Raises: as `request`."""
        headers = {**options.pop("headers", {}), "content-type": content_type}
        return (await self.request("POST", path, content=content, headers=headers, **options)).content

    @asynccontextmanager
    async def stream(
        self,
        method: str,
        path: str,
        *,
        timeout_s: float | None = None,
        params: Mapping[str, str | int] | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> AsyncIterator[httpx2.Response]:
        """An answer that is read while it comes, asked for once at each address until one answers.

        Raises:
            As `request`; also when the connection breaks inside the block.
        """
        repeatable, tries = method in _REPEATABLE, len(self._ways)
        for attempt in range(1, tries + 1):
            way, begun = self._ways.now, False
            try:
                call = Call(method, _address(way.url, path), None, headers or {}, params, timeout_s)
                async with way.client.stream(call) as response:
                    if response.status_code < 300:
                        begun = True
                        yield response
                        return
                    refusal = self._refused(way, response, await refusal_body(response))
                    if attempt == tries or not self._elsewhere(refusal, response, repeatable=repeatable):
                        raise refusal
            except httpx2.TransportError as error:
                self._ways.failed(way)
                if begun or attempt == tries or not self._worth_more(error, attempt, repeatable=repeatable):
                    raise unanswered(error, self.name, way.url, f"{method} {path}") from error

    def _elsewhere(self, refusal: GputError, response: Answer | httpx2.Response, *, repeatable: bool) -> bool:
        """Whether it is to be asked for at another address instead."""
        return self._ways.elsewhere(refusal) or (repeatable and self._ways.deserted(response))

    def _worth_more(self, error: httpx2.TransportError, attempt: int, *, repeatable: bool) -> bool:
        """Whether another try is safe, and may do better. Who says nothing is asked once; the peer's other address may be heard."""
        if isinstance(error, httpx2.ReadTimeout):
            return repeatable and attempt < len(self._ways)
        return isinstance(error, _CONNECTION_ERRORS if repeatable else _NEVER_SENT)

    def _pause_s(self, attempt: int) -> float:
        ceiling = min(LONGEST_PAUSE_S, FIRST_PAUSE_S * 2.0 ** (attempt - 1))
        # Half fixed, half drawn: many holders that lost the same peer do not come back in one instant.
        return ceiling * (0.5 + self._entropy(1)[0] / 512)

    def _refused(self, way: Way, response: Answer | httpx2.Response, body: bytes) -> GputError:
        if response.status_code < 400:
            return self._redirected(way, response)
        error = error_of(response.status_code, body[:MAX_PROBLEM_BYTES], self.name)
        error.retry_after_s = retry_after_s(response.headers.get("retry-after", ""))
        if self._ways.elsewhere(error) or self._ways.deserted(response):
            self._ways.failed(way)
        return error

    def _redirected(self, way: Way, response: Answer | httpx2.Response) -> Unavailable:
        """Nothing was done: what was asked is signed for this address, so no redirect is followed."""
        target = printable(response.headers.get("location", "")[:MAX_LOCATION])
        return Unavailable(
            f"{self.name} at {way.url} did not do it, but redirects ({response.status_code}) to {target or 'no address'}",
            code="peer-unintelligible",
            remedy=f"Give {self.name}'s own address, without a redirect: the one it names, if that is the service.",
        )

    def json_of(self, response: Answer, limit: int = MAX_ANSWER_BYTES) -> Any:
        """The body as strict JSON of at most `limit` bytes; None where there is none. Raises: Unavailable `peer-unintelligible`."""
        if not response.content:
            return None
        try:
            return json_value(response.content, limit)
        except BadRequest as error:
            raise self.unintelligible(f"something that is not JSON of at most {limit} bytes") from error

    def unintelligible(self, answered: str) -> Unavailable:
        """As `shared.service.unanswered`, of this peer."""
        return unintelligible(self.name, self._ways.now.url, f"with {answered}")


@lru_cache(maxsize=64)
def _address(base_url: str, path: str) -> httpx2.URL:
    """The same few addresses are called all the time, and taking one apart costs more than sending a short request. No more than those
    few are kept: most others name a visit, are never called again, and would fill memory for hours."""
    return httpx2.URL(base_url + path)


def _encoded(
    json: Any, content: Body | None, headers: Mapping[str, str] | None, idempotency_key: str | None
) -> tuple[Body | None, dict[str, str]]:
    all_headers = {name.lower(): value for name, value in (headers or {}).items()}
    if idempotency_key is not None:
        all_headers["idempotency-key"] = check_act_key(idempotency_key)
    if json is not None:
        all_headers.setdefault("content-type", "application/json")
        return json_bytes(json), all_headers
    return content, all_headers
