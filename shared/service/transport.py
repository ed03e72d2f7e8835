"""Our HTTP client's way to its peers: connections kept open and used again, one request at a time on each. Knows no peer and no retry.

httpx2's own transport is as correct and takes 2 ms longer for a request that meets cold caches, which every request of a visit does
(ADR 0020). Speaks HTTP/1.1, plain or over TLS; no proxy, no compression, no redirect.
"""

from __future__ import annotations

import asyncio
import re
import ssl
from collections.abc import AsyncIterator, Iterable, Mapping
from typing import Final

import httpx2

from shared.service.answers import Answer, require_readable, too_long
from shared.service.peer_connection import PeerConnection, within

MAX_IDLE: Final = 20
"""Connections to one peer that are kept though nobody uses them."""
MAX_IN_USE: Final = 256
"""Requests to one peer that may be under way at once, each on a connection of its own; the next one waits. Far more than a service asks of
a peer that answers, and far fewer than the file descriptors that a process has: a peer that answers nothing takes none of the others'."""
_BAD_HEADER: Final = re.compile(rb"[\r\n\0]")
_PORTS: Final = {"http": 80, "https": 443}

Origin = tuple[str, str, int]
Patience = Mapping[str, float | None]


class HttpTransport(httpx2.AsyncBaseTransport):
    """For one event loop. `idle_s`: how long an unused connection is used again; below the servers' own patience."""

    def __init__(self, *, idle_s: float = 30.0, tls: ssl.SSLContext | None = None) -> None:
        self._idle_s, self._tls = idle_s, tls
        self._idle: dict[Origin, list[tuple[PeerConnection, float]]] = {}
        self._free: dict[Origin, asyncio.Semaphore] = {}
        self._closed = False

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        """The answer's head; its body follows as it is read.

        Raises:
            httpx2.TransportError: ConnectError, ConnectTimeout, PoolTimeout: nothing was sent. ReadError, ReadTimeout, WriteTimeout,
                RemoteProtocolError: nobody knows whether it was heard. LocalProtocolError, UnsupportedProtocol: it is none of ours.
        """
        origin, named = _origin(request.url), request.headers.raw
        head = _head(request.method, request.url, named)
        chunked = any(name.lower() == b"transfer-encoding" for name, _ in named)
        patience: Patience = request.extensions.get("timeout", {})
        connection = await self._take(origin, patience)
        try:
            if not isinstance(request.stream, httpx2.AsyncByteStream):
                raise httpx2.LocalProtocolError("a body that blocks the event loop is not sent")
            await connection.ask(head, request.stream, chunked=chunked, wait_s=patience.get("write"))
            answer = await connection.head(patience.get("read"))
        except BaseException:
            self._drop(origin, connection)
            raise
        bodiless = request.method == "HEAD"
        return httpx2.Response(
            answer.status,
            headers=answer.headers,
            stream=_Body(self, origin, connection, patience.get("read"), bodiless=bodiless),
            extensions={"http_version": b"HTTP/1.1", "reason_phrase": answer.reason},
        )

    async def whole(
        self,
        method: str,
        url: httpx2.URL,
        headers: Mapping[str, str],
        body: bytes,
        *,
        patience: Patience,
        limit: int | None,
    ) -> Answer:
        """A request whose body is at hand, and its answer to its end: none of httpx2's objects is made on the way.

        Args:
            headers: all of them, the body's length with them. limit: of the answer's bytes; None: as long as it is.

        Raises:
            BadAnswer: it is not read on. httpx2.TransportError: as `handle_async_request`.
        """
        named = [(name.encode("ascii"), value.encode("ascii")) for name, value in headers.items()]
        origin, head = _origin(url), _head(method, url, named)
        connection = await self._take(origin, patience)
        try:
            await connection.ask_whole(head, body, patience.get("write"))
            answer = await connection.head(patience.get("read"))
            require_readable(answer.headers, limit)
            content = b"" if method == "HEAD" else await _all(connection, patience.get("read"), limit)
        except BaseException:
            self._drop(origin, connection)
            raise
        self.put_back(origin, connection)
        return Answer(answer.status, answer.headers, content)

    def put_back(self, origin: Origin, connection: PeerConnection) -> None:
        """Its answer was read, or will not be. Of each that was taken once."""
        self._free[origin].release()
        kept = self._idle.setdefault(origin, [])
        if self._closed or not connection.reusable or len(kept) >= MAX_IDLE:
            connection.abort()
            return
        kept.append((connection, asyncio.get_running_loop().time()))

    async def aclose(self) -> None:
        """Close what is kept; what is in use is closed when its answer was read."""
        for kept in self._idle.values():
            for connection, _ in kept:
                connection.abort()
        self._idle.clear()
        self._closed = True

    async def _take(self, origin: Origin, patience: Patience) -> PeerConnection:
        """One for a request of ours, to be put back or dropped. Raises: httpx2.PoolTimeout: too many are under way; as `_open`."""
        free = self._free.setdefault(origin, asyncio.Semaphore(MAX_IN_USE))
        if free.locked():
            await within(patience.get("pool"), free.acquire(), httpx2.PoolTimeout)
        else:
            await free.acquire()  # at once: a timer would cost each request more than all this
        try:
            return self._kept(origin) or await self._open(origin, patience)
        except BaseException:
            free.release()
            raise

    def _drop(self, origin: Origin, connection: PeerConnection) -> None:
        self._free[origin].release()
        connection.abort()

    def _kept(self, origin: Origin) -> PeerConnection | None:
        """The one used last, which the peer is least likely to have closed; all that waited too long are closed."""
        kept = self._idle.get(origin)
        while kept:
            connection, since = kept.pop()
            if connection.reusable and asyncio.get_running_loop().time() - since <= self._idle_s:
                return connection
            connection.abort()
        return None

    async def _open(self, origin: Origin, patience: Patience) -> PeerConnection:
        scheme, host, port = origin
        tls = self._context() if scheme == "https" else None
        making = asyncio.get_running_loop().create_connection(
            PeerConnection, host, port, ssl=tls, server_hostname=host if tls is not None else None
        )
        try:
            _, connection = await within(patience.get("connect"), making, httpx2.ConnectTimeout)
        except OSError as error:
            raise httpx2.ConnectError(f"no connection to {host}:{port}: {error.strerror or error}") from error
        return connection

    def _context(self) -> ssl.SSLContext:
        if self._tls is None:
            # The platform's environment must not choose whom TLS trusts.
            self._tls = httpx2.create_ssl_context(trust_env=False)
        return self._tls


class _Body(httpx2.AsyncByteStream):
    """An answer's body, read once."""

    def __init__(
        self, pool: HttpTransport, origin: Origin, connection: PeerConnection, read_s: float | None, *, bodiless: bool
    ) -> None:
        self._pool, self._origin, self._read_s, self._bodiless = pool, origin, read_s, bodiless
        self._connection: PeerConnection | None = connection

    async def __aiter__(self) -> AsyncIterator[bytes]:
        while (connection := self._connection) is not None and not self._bodiless:
            piece = await connection.piece(self._read_s)
            if piece is None:
                break
            yield piece
        await self.aclose()

    async def aclose(self) -> None:
        """The connection may be used again, if the answer is through; otherwise it ends."""
        connection, self._connection = self._connection, None
        if connection is not None:
            self._pool.put_back(self._origin, connection)


async def _all(connection: PeerConnection, wait_s: float | None, limit: int | None) -> bytes:
    pieces, length = [], 0
    while (piece := await connection.piece(wait_s)) is not None:
        pieces.append(piece)
        length += len(piece)
        if limit is not None and length > limit:
            raise too_long(limit)
    return b"".join(pieces)


def _origin(url: httpx2.URL) -> Origin:
    scheme, host = url.scheme, url.host
    if scheme not in _PORTS or not host:
        raise httpx2.UnsupportedProtocol(f"{scheme or 'nothing'} is not spoken here")
    return scheme, host, url.port or _PORTS[scheme]


def _head(method: str, url: httpx2.URL, headers: Iterable[tuple[bytes, bytes]]) -> bytes:
    """The head's bytes. Raises: httpx2.LocalProtocolError: a header would be taken for more than one."""
    lines = [b"%b %b HTTP/1.1" % (method.encode("ascii"), url.raw_path)]
    for name, value in headers:
        line = b"%b: %b" % (name, value)
        if _BAD_HEADER.search(line):
            raise httpx2.LocalProtocolError(f"the header {name!r} holds what no header may hold")
        lines.append(line)
    return b"\r\n".join([*lines, b"", b""])
