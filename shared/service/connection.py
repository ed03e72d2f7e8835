"""One HTTP connection as a stranger may use it: bounded heads, bounded patience, problems for answers. Knows no route.

uvicorn bounds neither the head of a request nor the time that anybody takes to send one: endless headers would take all memory, and idle
connections all descriptors. Here a head has a size and a deadline, a body a least rate, a client that does not read its answer a limit,
and when there are too many connections the one that has waited longest without a request makes room, or the one that has been at its
body longest, or else of those being answered the oldest of an address that has more of them than the newcomer's.
"""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import Callable
from enum import Enum, auto
from typing import Any, ClassVar, Final

import httptools
from uvicorn.protocols.http.httptools_impl import STATUS_LINE, HttpToolsProtocol

from shared.service.bulk import BULK, LEAST_BYTES, BulkBody, stated_length
from shared.service.crowd import Crowd, Unparsed
from shared.service.logging import get_logger
from shared.service.one_write import OneWrite
from shared.service.problems import MEDIA_TYPE, bare_problem

MAX_HEAD_BYTES: Final = 64 * 1024
MAX_HEADERS: Final = 256
HEAD_S: Final = 20.0
"""Time for the head of a request, from its first byte or from the connection's beginning."""
TICK_S: Final = 5.0
GRACE_S: Final = 20.0
MIN_RATE: Final = 1024
"""Bytes a second that a body brings, while the service is ready to read. Whoever was ahead of that may rest for as long as a body may take
to begin (`GRACE_S`), and no longer: bytes that came at once pay for no hours of silence."""
UNREAD_S: Final = 60.0
"""How long an answer may stand in full buffers without the client reading any of it."""
MAX_CONNECTIONS: Final = 1024

_log = get_logger("connection")


class _Phase(Enum):
    """What of a request is awaited next."""

    HEAD = auto()
    BODY = auto()
    ANSWER = auto()


class _Refused(Exception):  # raised inside the parser's callbacks; never leaves this file
    """The head breaks a limit."""


class GuardedProtocol(HttpToolsProtocol):
    """One connection. `crowd`: those of this server."""

    crowd: ClassVar[Crowd[GuardedProtocol]]

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self._phase, self._shut = _Phase.HEAD, False
        self._head = self._headers = self._received = 0
        self._ahead = 0.0
        self._bulk: BulkBody | None = None
        self._unwanted = 0
        self._timer: asyncio.TimerHandle | None = None
        self._unread: asyncio.TimerHandle | None = None

    # ------------------------------------------------------------ the connection

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]  # as in the base class
        """It begins; when there are too many, somebody who only waits has to go."""
        super().connection_made(transport)
        self.crowd.waiting[self] = None
        self._arm(HEAD_S, self._head_is_late)
        if len(self.connections) > self.crowd.limit:
            self.crowd.one_too_many(self).transport.abort()

    def connection_lost(self, exc: Exception | None) -> None:
        """It ends."""
        self._disarm()
        self.resume_writing()
        self.crowd.leaves(self)
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        """Bytes of one or several requests, cut anywhere."""
        if self._shut:
            return
        begun = self._phase
        if self._unwanted:
            data = self._passed_over(data)
        if data:
            super().data_received(data)
        if self.transport.is_closing() or self._shut:
            self._disarm()
        elif self._phase is _Phase.HEAD:
            if begun is _Phase.HEAD:  # else most of this may have been a body
                self._head += len(data)  # also what no callback has told of yet: one endless header is a head, too
            if self._head > 2 * MAX_HEAD_BYTES:
                self._refuse_head()
            elif self._timer is None:
                self._arm(HEAD_S, self._head_is_late)
        elif self._phase is _Phase.BODY:
            self.body_came(len(data))
        else:
            self._disarm()

    def pause_writing(self) -> None:
        """The client does not read as fast as we write."""
        super().pause_writing()
        self._unread = self.loop.call_later(UNREAD_S, self.transport.abort)

    def resume_writing(self) -> None:
        """It has read."""
        super().resume_writing()
        if self._unread is not None:
            self._unread.cancel()
            self._unread = None

    # ------------------------------------------------------------ what the parser tells

    def on_message_begin(self) -> None:
        """A request begins."""
        super().on_message_begin()
        self._phase, self._head, self._headers = _Phase.HEAD, 0, 0

    def on_url(self, url: bytes) -> None:
        """A piece of its address."""
        self._count(len(url))
        super().on_url(url)

    def on_header(self, name: bytes, value: bytes) -> None:
        """A whole header."""
        self._headers += 1
        self._count(len(name) + len(value))
        super().on_header(name, value)

    def on_headers_complete(self) -> None:
        """The head is there; the application begins."""
        self._disarm()
        self.crowd.waiting.pop(self, None)
        self.crowd.sending[self] = None
        self._phase, self._received, self._ahead = _Phase.BODY, 0, MIN_RATE * GRACE_S
        super().on_headers_complete()
        self.cycle.transport = OneWrite(self.transport, self.loop)
        self._bulk = self._bulk_body()

    def on_body(self, body: bytes) -> None:
        """A piece of the body."""
        if self._bulk is not None:
            self._bulk.unparsed -= len(body)
        super().on_body(body)

    def on_message_complete(self) -> None:
        """The body is there."""
        self._disarm()
        self.crowd.sending.pop(self, None)
        self.crowd.answering[self] = None
        self._phase = _Phase.ANSWER
        super().on_message_complete()
        if self.cycle.response_complete:  # answered before it was all there
            self._rest()

    def on_response_complete(self) -> None:
        """It was answered; the connection may bring another."""
        if self._bulk is not None and self._bulk.answered:  # and not the next request's, whose head came early
            self._unwanted, self._bulk = self._bulk.refuse_rest(self), None
        super().on_response_complete()
        if self._phase is _Phase.ANSWER and not self.transport.is_closing():
            self._rest()

    def _rest(self) -> None:
        self._phase, self._head = _Phase.HEAD, 0
        self.crowd.answering.pop(self, None)
        self.crowd.waiting[self] = None

    # ------------------------------------------------------------ bodies past the parser

    def _bulk_body(self) -> BulkBody | None:
        """The request's body for whoever wants it where it belongs; None: its length is not stated, or it is not worth it."""
        length = stated_length(self.headers)
        if length < LEAST_BYTES or self.parser.should_upgrade() or self.expect_100_continue or self.scheme != "http":
            return None
        bulk = BulkBody(self, length)
        self.scope[BULK] = bulk  # type: ignore[typeddict-unknown-key]  # ours, beside what ASGI knows
        return bulk

    def body_came(self, count: int) -> None:
        """Bytes of a body arrived; whoever sends them too slowly is not waited for."""
        self._received += count
        if self._timer is None:
            self._arm(TICK_S, self._look_at_body)

    def body_ended(self) -> None:
        """All of a body has come past the parser: one that knows nothing of it parses what follows."""
        if self._bulk is not None:
            self._bulk.turn_to(self)
        self.parser = httptools.HttpRequestParser(self)
        self.flow.resume_reading()
        self.on_message_complete()

    def _passed_over(self, data: bytes) -> bytes:
        """What of the data belongs to no unwanted body."""
        self._unset_keepalive_if_required()  # as the base class does: something comes
        count = min(len(data), self._unwanted)
        self._unwanted -= count
        self.body_came(count)
        if not self._unwanted:
            self.body_ended()
        return data[count:]

    # ------------------------------------------------------------ limits

    @property
    def address(self) -> str:
        """Whose it is, as far as that can be told."""
        return self.client[0] if self.client else ""

    def _count(self, length: int) -> None:
        self._head += length
        if self._head > MAX_HEAD_BYTES or self._headers > MAX_HEADERS:
            self._refuse_head()
            raise _Refused

    def _refuse_head(self) -> None:
        self._refuse(431, "head-too-large", "Request header fields too large",
                     f"a request's head has at most {MAX_HEAD_BYTES} bytes and {MAX_HEADERS} fields")  # fmt: skip

    def _head_is_late(self) -> None:
        self._refuse(408, "request-too-slow", "Request timeout", f"a request's head comes within {HEAD_S:.0f} s")

    def _look_at_body(self) -> None:
        self._timer = None
        self._ahead, self._received = min(self._ahead + self._received, MIN_RATE * GRACE_S), 0
        if not self.flow.read_paused:
            self._ahead -= MIN_RATE * TICK_S
        if self._ahead < 0:
            detail = f"a request's body brings at least {MIN_RATE} bytes a second"
            self._refuse(408, "request-too-slow", "Request timeout", detail)
        else:
            self._arm(TICK_S, self._look_at_body)

    def send_400_response(self, msg: str) -> None:
        """What is no HTTP, or was refused while it was parsed."""
        if not self._shut:
            self._refuse(400, "malformed-request", "Bad request", "what was sent is not an HTTP/1.1 request")

    def _refuse(self, status: int, code: str, title: str, detail: str) -> None:
        """Say why, unless an answer is under way on this connection, and end it."""
        self._shut = True
        self._disarm()
        cycle = self.cycle
        answering = cycle is not None and not cycle.response_complete
        if answering and (self._phase is _Phase.HEAD or cycle.response_started):
            self.transport.abort()
            return
        if answering:  # the application waits for a body that never comes
            cycle.disconnected = True
            cycle.message_event.set()
        body = json.dumps(bare_problem(status, code, title, detail)).encode()
        head = f"content-type: {MEDIA_TYPE}\r\ncontent-length: {len(body)}\r\nconnection: close\r\n\r\n".encode()
        self.transport.write(STATUS_LINE[status] + head + body)
        self.transport.close()
        if not answering:  # else it became a request, and counts as one
            self._was_refused(status, code)

    def _was_refused(self, status: int, code: str) -> None:
        _log.info("refused unparsed", address=self.address, status=status, code=code)
        self.crowd.unparsed(self.address, status)

    def _arm(self, seconds: float, act: Callable[[], None]) -> None:
        self._timer = self.loop.call_later(seconds, act)

    def _disarm(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None


def _not_ours(record: logging.LogRecord) -> bool:
    """Uvicorn's line of what was malformed says neither whose it was nor what it was answered; ours does."""
    return record.msg != "Invalid HTTP request received."


def guarded(most: int | None = None, unparsed: Unparsed | None = None) -> type[GuardedProtocol]:
    """The protocol of one server: at most so many connections, and no more than leave descriptors for everything else. `unparsed` is told
    address and status of what never became a request."""
    logging.getLogger("uvicorn.error").addFilter(_not_ours)
    crowd: Crowd[GuardedProtocol] = Crowd(most or MAX_CONNECTIONS, unparsed)
    return type("Guarded", (GuardedProtocol,), {"crowd": crowd})
