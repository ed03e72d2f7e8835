"""Answers of peers within bounds: no more bytes than agreed, and none that are compressed. Knows no peer and no retry.

Whoever answers a request is not trusted before what it says was verified, and may be the platform: an answer must not fill our memory,
neither by its length nor by what it unpacks to (a decompression bomb).
"""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Final

import httpx2

from shared.errors import Unavailable

LIMIT: Final = (
    "gput.answer_bytes"  # request extension: at most so many bytes; absent: the reader keeps to its own bound
)
MAX_REFUSAL_BYTES: Final = 1024 * 1024
"""What is read of a refusal in place of a stream, whose reader would have a bound of its own."""
UNCOMPRESSED: Final = {"accept-encoding": "identity"}


@dataclass(frozen=True)
class Answer:
    """An answer read to its end, uncompressed. `raw`: its headers as they came."""

    status_code: int
    raw: Sequence[tuple[bytes, bytes]]
    content: bytes

    @property
    def headers(self) -> httpx2.Headers:
        """Its headers by name. Made when somebody looks: of most answers nobody does."""
        return httpx2.Headers(self.raw)

    def json(self) -> Any:
        """The JSON value that it is. Raises: ValueError: it is none."""
        return json.loads(self.content)


class BadAnswer(httpx2.TransportError):
    """An answer that is not read on: too long, or in an encoding that was not asked for."""


class NotItself(httpx2.TransportError):
    """The peer itself did not answer, or nobody can tell whether it did. Which other transport error it is says what may be tried again;
    `meant`: what is said in the end."""

    def __init__(self, meant: Unavailable) -> None:
        super().__init__(meant.detail)
        self.meant = meant


def answers_within(limit: int) -> dict[str, Any]:
    """The extension of a request whose answer has at most `limit` bytes."""
    return {LIMIT: limit}


class BoundedAnswers(httpx2.AsyncBaseTransport):
    """Around another transport. Its requests should carry `UNCOMPRESSED`."""

    def __init__(self, inner: httpx2.AsyncBaseTransport) -> None:
        self._inner = inner

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        """The answer, with a body that stops at the request's limit. Raises: BadAnswer, at once or while it is read."""
        response = await self._inner.handle_async_request(request)
        limit = request.extensions.get(LIMIT)
        try:
            require_readable(response.headers.raw, limit)
        except BadAnswer:
            await response.aclose()
            raise
        if limit is not None:
            response.stream = _Bounded(response.stream, limit)
        return response

    async def aclose(self) -> None:
        """Closes the inner transport."""
        await self._inner.aclose()


def require_readable(headers: Iterable[tuple[bytes, bytes]], limit: int | None) -> None:
    """By its head an answer may be read. Raises: BadAnswer: it is encoded, or longer than `limit` bytes."""
    encoding, stated = _encoding_and_length(headers)
    if encoding != "identity":
        raise BadAnswer(f"it is encoded as {encoding[:40]!r}, which was not asked for")
    if limit is not None and stated.isdigit() and int(stated) > limit:
        raise BadAnswer(f"it has {stated[:40]} bytes, and at most {limit} are read")


async def refusal_body(response: httpx2.Response) -> bytes:
    """The whole of what came in place of a stream. Raises: BadAnswer: it has more than `MAX_REFUSAL_BYTES`."""
    response.stream = _Bounded(response.stream, MAX_REFUSAL_BYTES)
    return await response.aread()


def too_long(limit: int) -> BadAnswer:
    """What a body turned out to be."""
    return BadAnswer(f"it has more than {limit} bytes")


def _encoding_and_length(headers: Iterable[tuple[bytes, bytes]]) -> tuple[str, str]:
    """What an answer's headers say of these two, in one look: of encodings the first that is one."""
    encoding, length = "identity", "0"
    for name, value in headers:
        lowered = name.lower()
        if lowered == b"content-length":
            length = value.decode("latin-1")
        elif lowered == b"content-encoding" and encoding == "identity":
            encoding = value.decode("latin-1").lower()
    return encoding, length


class _Bounded(httpx2.AsyncByteStream):
    def __init__(self, inner: Any, limit: int) -> None:
        self._inner, self._limit = inner, limit

    async def __aiter__(self) -> AsyncIterator[bytes]:
        left = self._limit
        async for piece in self._inner:
            left -= len(piece)
            if left < 0:
                raise too_long(self._limit)
            yield piece

    async def aclose(self) -> None:
        await self._inner.aclose()
