"""One address's HTTP client: a signed request out, its answer back, and nothing between. Knows no peer's name and no retry.

httpx2's own client follows redirects, keeps cookies, asks hooks and merges settings for every request; we allow none of it, and a visit
pays for its way through that code a dozen times (ADR 0020). Addresses, errors and
transports are httpx2's; its requests and answers are made for streams, other transports and other ways of signing only.
"""

from __future__ import annotations

from collections.abc import AsyncIterable, AsyncIterator, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass, field
from typing import Any, Protocol

import httpx2

from shared.service.answers import LIMIT, UNCOMPRESSED, Answer, BoundedAnswers
from shared.service.signatures import SignedAuth
from shared.service.transport import HttpTransport

CONNECT_TIMEOUT_S = 5.0
_WITH_BODY = frozenset({"POST", "PUT", "PATCH"})
"""Methods that say so where they bring none (RFC 9110 section 8.6)."""
Body = bytes | AsyncIterable[bytes]


@dataclass(frozen=True)
class Call:
    """What is asked. `timeout_s`: of each read, write and wait; None: the client's own. `extensions`: for transports."""

    method: str
    url: httpx2.URL
    content: Body | None = None
    headers: Mapping[str, str] = field(default_factory=dict)
    params: Mapping[str, str | int] | None = None
    timeout_s: float | None = None
    extensions: Mapping[str, Any] = field(default_factory=dict)


class Asks(Protocol):
    """Who asks at one address."""

    async def ask(self, call: Call) -> Answer:
        """The answer, read to its end. Raises: httpx2.TransportError."""

    def stream(self, call: Call) -> AbstractAsyncContextManager[httpx2.Response]:
        """The answer's head; its body is read inside the block. Raises: httpx2.TransportError, there too."""


class PlainClient:
    """For one event loop. `auth` signs each request; of its flow only the first request is sent."""

    def __init__(self, transport: httpx2.AsyncBaseTransport, *, auth: httpx2.Auth | None, timeout_s: float) -> None:
        self._transport, self._auth, self._timeout_s = BoundedAnswers(transport), auth, timeout_s
        # Who signs otherwise looks at a request of httpx2's.
        self._own = transport if isinstance(transport, HttpTransport) and _signs_fields(auth) else None

    async def ask(self, call: Call) -> Answer:
        """The answer, read to its end. Raises: httpx2.TransportError."""
        if self._own is not None and (call.content is None or isinstance(call.content, bytes)):
            body = call.content or b""
            url, headers = self._signed(call, body)
            patience, limit = self._timeout(call.timeout_s), call.extensions.get(LIMIT)
            return await self._own.whole(call.method, url, headers, body, patience=patience, limit=limit)
        response = await self._send(call)
        stream = response.stream
        assert isinstance(stream, httpx2.AsyncByteStream)  # what every asynchronous transport gives
        try:
            # Its pieces as they come: httpx2 would look for a compression, which no answer of ours may have (`BoundedAnswers`).
            content = b"".join([piece async for piece in stream])
        finally:
            await response.aclose()
        return Answer(response.status_code, response.headers.raw, content)

    @asynccontextmanager
    async def stream(self, call: Call) -> AsyncIterator[httpx2.Response]:
        """The answer's head; its body is read inside the block. Raises: httpx2.TransportError, there too."""
        response = await self._send(call)
        try:
            yield response
        finally:
            await response.aclose()

    async def close(self) -> None:
        """Close the transport."""
        await self._transport.aclose()

    async def _send(self, call: Call) -> httpx2.Response:
        extensions = {"timeout": self._timeout(call.timeout_s), **call.extensions}
        if call.content is None or isinstance(call.content, bytes):
            request = self._whole(call, call.content or b"", extensions)
        else:
            request = httpx2.Request(
                call.method, call.url, params=call.params, headers={**UNCOMPRESSED, **call.headers}, content=call.content,
                extensions=extensions,
            )  # fmt: skip
            if self._auth is not None:
                request = next(self._auth.auth_flow(request))
        response = await self._transport.handle_async_request(request)
        response.request = request
        return response

    def _whole(self, call: Call, body: bytes, extensions: dict[str, Any]) -> httpx2.Request:
        """A request whose body is at hand, made in one go: httpx2 would go over its headers a dozen times."""
        url, headers = self._signed(call, body)
        request = httpx2.Request(
            call.method, url, headers=headers, stream=httpx2.ByteStream(body), extensions=extensions
        )
        request.read()
        if not _signs_fields(self._auth):
            assert self._auth is not None
            request = next(self._auth.auth_flow(request))
        return request

    def _signed(self, call: Call, body: bytes) -> tuple[httpx2.URL, dict[str, str]]:
        """Where to, and all headers; the signature with them, where the header fields are all that signing takes."""
        url = call.url if call.params is None else httpx2.URL(call.url, params=call.params)
        headers = {"host": url.netloc.decode("ascii"), **UNCOMPRESSED}
        headers |= {name.lower(): value for name, value in call.headers.items()}
        if body or call.method in _WITH_BODY:
            headers["content-length"] = str(len(body))
        if isinstance(self._auth, SignedAuth):
            headers |= self._auth.fields(call.method, url, headers, body)
        return url, headers

    def _timeout(self, timeout_s: float | None) -> dict[str, float]:
        wait = self._timeout_s if timeout_s is None else timeout_s
        return {"connect": CONNECT_TIMEOUT_S, "read": wait, "write": wait, "pool": wait}


def _signs_fields(auth: httpx2.Auth | None) -> bool:
    return auth is None or isinstance(auth, SignedAuth)
