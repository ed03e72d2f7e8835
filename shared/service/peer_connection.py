"""One HTTP/1.1 connection of ours to a peer: a request out, its answer back, one at a time. Knows no URL, no pool and no retry.

The peer is not trusted (it may be the platform): what it sends beside an answer's body is bounded, and what it sends unasked ends the
connection, for an answer that came before its question would be taken for the answer to the next one. Parsing is llhttp's.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterable, Awaitable, Callable
from dataclasses import dataclass, field
from typing import Final, TypeVar, cast

import httptools
import httpx2

MAX_HEAD_BYTES: Final = 512 * 1024
"""What may come between two pieces of body: a head, interim answers, trailers. Twice what one read brings."""
MAX_INTERIM: Final = 8
HIGH_WATER: Final = 1024 * 1024
"""Bytes of body that wait for their reader before the peer is made to wait."""
JOINED_BYTES: Final = 64 * 1024
"""A request of at most so many bytes leaves in one write."""
WRITE_BYTES: Final = 1024 * 1024
"""At most so many in one write. Whoever takes some of them within the time allowed is a slow peer, and not a silent one."""

Buffer = bytes | bytearray | memoryview
T = TypeVar("T")


class _Unasked(Exception):  # raised inside the parser's callbacks; never leaves this file
    """The peer says what nobody asked for."""


@dataclass
class AnswerHead:
    """Status and headers as they came; `endless`: only the connection's end tells that the body is whole."""

    status: int = 0
    reason: bytes = b""
    headers: list[tuple[bytes, bytes]] = field(default_factory=list)
    endless: bool = False


class PeerConnection(asyncio.Protocol):
    """All calls come from the event loop's thread; `ask`, `head`, then `piece` until it says None."""

    def __init__(self) -> None:
        self._transport: asyncio.Transport | None = None
        self._fault: httpx2.TransportError | None = None
        self._waiter: asyncio.Future[None] | None = None
        self._writable = True
        self._complete = self._sent = True  # nothing is asked yet
        self._begin()

    def _begin(self) -> None:
        self._parser = httptools.HttpResponseParser(self)
        self._head: AnswerHead | None = None
        self._coming = AnswerHead()
        self._pieces: deque[bytes] = deque()
        self._unread = self._beside = self._interim = 0

    # ------------------------------------------------------------ who asks

    @property
    def reusable(self) -> bool:
        """The last request and its answer are through, and the peer will hear another."""
        return self._complete and self._sent and self._fault is None

    def abort(self) -> None:
        """Nothing more is wanted of it."""
        self._fail(httpx2.ReadError("the connection was closed here"))

    async def ask(self, head: bytes, body: AsyncIterable[Buffer], *, chunked: bool, wait_s: float | None) -> None:
        """Send a request; returns early when the peer answers before it has heard it all.

        Raises:
            httpx2.WriteTimeout: it takes nothing for `wait_s`. httpx2.TransportError: the connection broke, and there is no answer.
        """
        self._begin()
        self._complete = self._sent = False
        unsent = head
        async for piece in body:
            framed = b"%x\r\n%b\r\n" % (len(piece), bytes(piece)) if chunked else piece
            if len(unsent) + len(framed) <= JOINED_BYTES:
                unsent += framed
                continue
            if not await self._write(unsent, wait_s) or not await self._write(framed, wait_s):
                return
            unsent = b""
        if await self._write(unsent + (b"0\r\n\r\n" if chunked else b""), wait_s):
            self._sent = True

    async def ask_whole(self, head: bytes, body: bytes, wait_s: float | None) -> None:
        """`ask`, of a body that is at hand and whose length the head states. Raises: as `ask`."""
        self._begin()
        self._complete = self._sent = False
        if len(head) + len(body) <= JOINED_BYTES:
            self._sent = await self._write(head + body, wait_s)
        else:
            self._sent = await self._write(head, wait_s) and await self._write(body, wait_s)

    async def head(self, wait_s: float | None) -> AnswerHead:
        """The answer's head. Raises: httpx2.ReadTimeout, httpx2.TransportError."""
        if self._head is None:
            await self._until(lambda: self._head is not None, wait_s, httpx2.ReadTimeout)
        assert self._head is not None
        return self._head

    async def piece(self, wait_s: float | None) -> bytes | None:
        """The next bytes of the body; None after the last. Raises: httpx2.ReadTimeout, httpx2.TransportError."""
        if not self._pieces and not self._complete:
            await self._until(lambda: bool(self._pieces) or self._complete, wait_s, httpx2.ReadTimeout)
        if not self._pieces:
            return None
        piece = self._pieces.popleft()
        before, self._unread = self._unread, self._unread - len(piece)
        if before > HIGH_WATER >= self._unread and self._transport is not None:
            self._transport.resume_reading()
        return piece

    async def _write(self, data: Buffer, wait_s: float | None) -> bool:
        """Whether there is reason to send on."""
        view = memoryview(data)
        for at in range(0, len(view), WRITE_BYTES):
            if self._transport is None or self._fault is not None or self._head is not None:
                break
            self._transport.write(view[at : at + WRITE_BYTES])
            if not self._writable:
                await self._drained(wait_s)
        if self._fault is not None and self._head is None:
            raise self._fault
        return self._head is None

    async def _drained(self, wait_s: float | None) -> None:
        """Until the peer has taken what was written, or answers; as long as it takes some of it within each `wait_s`."""
        while self._transport is not None:
            before = self._transport.get_write_buffer_size()
            try:
                await self._until(lambda: self._writable or self._head is not None, wait_s, httpx2.WriteTimeout)
                return
            except httpx2.WriteTimeout:
                if self._transport is None or self._transport.get_write_buffer_size() >= before:
                    raise

    async def _until(
        self, holds: Callable[[], bool], wait_s: float | None, late: type[httpx2.TimeoutException]
    ) -> None:
        """Wait until it holds. Raises: `late`: it did not within `wait_s`; the connection's fault.

        A timer of the loop's, and no `asyncio.timeout`: that costs every answer a tenth of what the request cost here.
        """
        loop = asyncio.get_running_loop()
        over = False

        def end() -> None:
            nonlocal over
            over = True
            self._wake()

        timer = loop.call_later(wait_s, end) if wait_s is not None else None
        try:
            while not holds():
                if self._fault is not None:
                    raise self._fault
                if over:
                    raise late(f"nothing within {wait_s} s")
                self._waiter = loop.create_future()
                try:
                    await self._waiter
                finally:
                    self._waiter = None
        finally:
            if timer is not None:
                timer.cancel()

    def _wake(self) -> None:
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)

    def _fail(self, fault: httpx2.TransportError) -> None:
        self._fault = self._fault or fault
        if self._transport is not None:
            self._transport.abort()
        self._wake()

    # ------------------------------------------------------------ the connection

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """It stands."""
        self._transport = cast(asyncio.Transport, transport)  # uvloop's is none by its class

    def connection_lost(self, exc: Exception | None) -> None:
        """It is gone. An answer that nothing else ends is whole now."""
        if exc is None and self._head is not None and self._head.endless and self._fault is None:
            self._complete = True
        said = "in the middle of its answer" if self._head is not None else "without an answer"
        self._fault = self._fault or (
            httpx2.RemoteProtocolError(f"the peer closed the connection {said}")
            if exc is None
            else httpx2.ReadError(f"the connection broke ({type(exc).__name__})")
        )
        self._transport = None
        self._wake()

    def pause_writing(self) -> None:
        """The peer does not read as fast as we write."""
        self._writable = False

    def resume_writing(self) -> None:
        """It has read."""
        self._writable = True
        self._wake()

    def data_received(self, data: bytes) -> None:
        """Bytes of an answer, cut anywhere."""
        if self._complete:  # nobody asked
            self._fail(httpx2.RemoteProtocolError("the peer said something unasked"))
            return
        self._beside += len(data)
        try:
            self._parser.feed_data(data)
        except (httptools.HttpParserError, httptools.HttpParserUpgrade) as error:
            unasked = isinstance(error.__context__, _Unasked)
            why = (
                "the peer said something unasked" if unasked else f"the answer is no HTTP/1.1 ({type(error).__name__})"
            )
            self._fail(httpx2.RemoteProtocolError(why))
            return
        if self._beside > MAX_HEAD_BYTES:
            self._fail(httpx2.RemoteProtocolError(f"an answer's head has at most {MAX_HEAD_BYTES} bytes"))
        self._wake()

    # ------------------------------------------------------------ what the parser tells

    def on_message_begin(self) -> None:
        """An answer begins: the one asked for, one before it, or one that nobody asked for."""
        if self._complete or self._interim > MAX_INTERIM:
            raise _Unasked
        self._coming = AnswerHead()

    def on_status(self, reason: bytes) -> None:
        """Words beside the status, or a piece of them."""
        self._coming.reason += reason

    def on_header(self, name: bytes, value: bytes) -> None:
        """A whole header; trailers are not kept."""
        if self._head is None:
            self._coming.headers.append((name, value))

    def on_headers_complete(self) -> None:
        """The head is there."""
        coming = self._coming
        coming.status = self._parser.get_status_code()
        if coming.status < 200:
            self._interim += 1
            return
        named = {name.lower() for name, _ in coming.headers}
        bodiless = coming.status in (204, 304)
        coming.endless = not bodiless and not named & {b"content-length", b"transfer-encoding"}
        self._head = coming

    def on_body(self, piece: bytes) -> None:
        """Bytes of the body."""
        self._beside = 0
        self._pieces.append(piece)
        before, self._unread = self._unread, self._unread + len(piece)
        if before <= HIGH_WATER < self._unread and self._transport is not None:
            self._transport.pause_reading()

    def on_message_complete(self) -> None:
        """The answer is whole."""
        if self._head is None:  # that was an interim one
            return
        self._complete = True
        if not self._parser.should_keep_alive():
            self._sent = False  # no other request will be heard


async def within(seconds: float | None, act: Awaitable[T], late: type[httpx2.TimeoutException]) -> T:
    """What `act` gives, or `late`."""
    try:
        async with asyncio.timeout(seconds):
            return await act
    except TimeoutError:
        raise late(f"nothing within {seconds} s") from None
