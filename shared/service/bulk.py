"""A request's body received straight into its reader's memory, past the parser that counts nothing else. Knows no route and no content.

Loop, parser and server copy each byte of a body four times before whoever wants it has it. Where a body's length is stated, nothing in it
needs parsing: its reader says where the next bytes belong, and the kernel writes them there. The head went through the parser, as every
head does; so does what follows the body (`shared.service.connection`), which must begin where the stated length ends and nowhere else.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Final, Protocol

from starlette.requests import ClientDisconnect
from uvicorn.protocols.http.flow_control import FlowControl
from uvicorn.protocols.http.httptools_impl import RequestResponseCycle

Headers = Sequence[tuple[bytes, bytes]]
BULK: Final = "gput.bulk"
"""Where a request's scope has its `BulkBody`, if it has one."""
LEAST_BYTES: Final = 64 * 1024
"""A shorter body is there before anybody could say where it belongs."""


class Connection(Protocol):
    """What a body's connection is to it, and does for it."""

    cycle: RequestResponseCycle
    transport: asyncio.Transport
    flow: FlowControl

    def body_came(self, count: int) -> None:
        """So many bytes of the body arrived, past the parser."""

    def body_ended(self) -> None:
        """The last of them did: the parser goes on with what follows."""

    def connection_lost(self, exc: Exception | None) -> None:
        """As `asyncio.BaseProtocol`."""

    def pause_writing(self) -> None:
        """As `asyncio.BaseProtocol`."""

    def resume_writing(self) -> None:
        """As `asyncio.BaseProtocol`."""


class BulkBody(asyncio.BufferedProtocol):
    """The body, of a stated length, of the request whose head `connection` has just parsed. Read by one reader, with `into` alone; once it
    has begun, nothing arrives while it does not read.

    Attributes:
        left: bytes that the reader has not had. unparsed: bytes that the parser has not seen, and will not once reading has begun here.
        begun: whether it has.
    """

    def __init__(self, connection: Connection, length: int) -> None:
        self._connection, self._cycle = connection, connection.cycle
        self.left = self.unparsed = length
        self.begun = False
        self._target = memoryview(b"")
        self._waiter: asyncio.Future[None] | None = None

    async def into(self, target: memoryview) -> None:
        """Fill `target` with the body's next bytes.

        Raises:
            ClientDisconnect: the connection ends before. ValueError: so many are not left.
        """
        if len(target) > self.left:
            raise ValueError(f"{len(target)} bytes of a body of which {self.left} are left")
        self.left -= len(target)
        parsed = self._cycle.body
        there = min(len(parsed), len(target))
        target[:there] = parsed[:there]
        del parsed[:there]
        if there < len(target):
            await self._received(target[there:])

    async def _received(self, target: memoryview) -> None:
        if self._cycle.disconnected:
            raise ClientDisconnect
        waiter = self._waiter = asyncio.get_running_loop().create_future()
        self._target = target
        if not self.begun:
            self.begun = True
            self.turn_to(self)
        self._connection.flow.resume_reading()
        try:
            await waiter
        finally:
            self._waiter = None
            if self._target:  # it waits no more: then nothing may arrive either
                self._target = memoryview(b"")
                self._connection.flow.pause_reading()

    def refuse_rest(self, protocol: asyncio.BaseProtocol) -> int:
        """The request was answered: bytes of its body that are yet to come, to `protocol`, and wanted by nobody. 0: the parser has them."""
        if not self.begun or not self.unparsed:
            return 0
        self.turn_to(protocol)
        return self.unparsed

    @property
    def answered(self) -> bool:
        """Whether its request was."""
        return self._cycle.response_complete

    def turn_to(self, protocol: asyncio.BaseProtocol) -> None:
        """Who hears of what arrives from now on; reading rests until it is resumed."""
        self._connection.flow.pause_reading()  # a transport decides how it reads when it begins to
        self._connection.transport.set_protocol(protocol)

    # ------------------------------------------------------------ the connection

    def get_buffer(self, sizehint: int) -> memoryview:
        """Where the next bytes belong."""
        return self._target

    def buffer_updated(self, nbytes: int) -> None:
        """So many are there."""
        self._target = self._target[nbytes:]
        self.unparsed -= nbytes
        self._connection.body_came(nbytes)
        if not self.unparsed:
            self._connection.body_ended()
        elif not self._target:
            self._connection.flow.pause_reading()
        if not self._target and self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)

    def eof_received(self) -> None:
        """The client sends nothing more: the connection ends."""

    def connection_lost(self, exc: Exception | None) -> None:
        """It is gone."""
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_exception(ClientDisconnect())
        self._connection.connection_lost(exc)

    def pause_writing(self) -> None:
        """The client does not read as fast as we write."""
        self._connection.pause_writing()

    def resume_writing(self) -> None:
        """It has read."""
        self._connection.resume_writing()


def stated_length(headers: Headers) -> int:
    """Bytes of the body that a parsed head announces; 0 where it states none, or sends it in chunks."""
    found = dict(headers)  # names in lower case; the parser refuses a second length, and a length beside chunks
    stated = found.get(b"content-length", b"")
    return int(stated) if stated.isdigit() and b"transfer-encoding" not in found else 0
