"""The doorbell of a bounce buffer: places named on the connection that the buffer lives by. Knows no record, no port and no reason.

A request over HTTP costs more than opening a megabyte, and so does handing a ring from a socket's event loop to another thread and its
answer back: on two cores that thread is put where the holder's is still sealing, and waits for milliseconds. So a doorbell has a thread of
its own, which the kernel wakes where there is room. One rule keeps several rings under way safe: once something was not taken, nothing rung
in the same turn is looked at, for a record that comes before its turn ends the grant. And nothing that a holder rang before it hung up: it
brings that another way, and may have done so by now.
"""

from __future__ import annotations

import asyncio
import select
import socket
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import Final, Protocol

from shared.errors import BadRequest, GputError
from shared.service.logging import get_logger
from shared.service.threads import ended
from shared.wire.bounce import FRAME, MAX_RUNG_BYTES, BellAck, Rung, pack_ack, unpack_rung
from shared.wire.copy import Copied

NOT_TAKEN: Final = FRAME.pack(0)
_READ_BYTES: Final = 4096

_log = get_logger("bounce")


class Copies(Protocol):
    """Where records are copied. Both are called on a doorbell's thread, and block it."""

    def arrives(self, rung: Rung) -> None:
        """Until the GPU is at the ring's port, at most as long as it says. Raises: GputError: there is no such GPU or port."""

    def copy(self, name: str, rung: Rung) -> Copied:
        """Copy what lies at the places in the buffer of a name; the last one's acknowledgement. Raises: GputError: not all of them."""


class Doorbell:
    """One connection's. `name`: of its buffer."""

    def __init__(self, connection: socket.socket, name: str, copies: Copies) -> None:
        self._connection, self._name, self._copies = connection, name, copies
        self._end_of_it = select.poll()
        # Not by reading: what was rung before it lies before it.
        self._end_of_it.register(connection, select.POLLRDHUP)
        self._read = b""
        self._refused: int | None = None

    async def serve(self) -> None:
        """Answer until the connection ends. Raises: BadRequest: what comes is no frame. OSError."""
        self._connection.setblocking(True)
        with ThreadPoolExecutor(1, "doorbell") as thread:
            work = asyncio.get_running_loop().run_in_executor(thread, self._run)
            try:
                await asyncio.shield(work)
            finally:
                with suppress(OSError):  # it has ended already
                    self._connection.shutdown(socket.SHUT_RDWR)
                await ended(work)

    def _run(self) -> None:
        while (rung := self._next()) is not None:
            self._answer(rung)

    def _answer(self, rung: Rung) -> None:
        if rung.turn != self._refused:
            try:
                waited_s = self._awaited(rung) if rung.wait_ms else 0.0
                self._require_holder()
                ack = self._copies.copy(self._name, rung)
            except GputError:
                pass  # said over HTTP, where the same is asked again
            except Exception:  # a bug in here must not end the holder's visit: it is asked again
                _log.exception("a doorbell's records were not taken")
            else:
                answer = pack_ack(BellAck(ack.index, ack.received, ack.published, int(waited_s * 1e6)))
                self._say(FRAME.pack(len(answer)) + answer)
                return
        self._refused = rung.turn
        self._say(NOT_TAKEN)

    def _awaited(self, rung: Rung) -> float:
        """Seconds that it took the GPU to appear. Raises: GputError: it cannot."""
        began = time.monotonic()
        self._copies.arrives(rung)
        return time.monotonic() - began

    def _require_holder(self) -> None:
        """Raises: BadRequest: nobody waits for the answer any more."""
        if self._end_of_it.poll(0):
            raise BadRequest("the holder hung up")

    def _say(self, answer: bytes) -> None:
        # Whole and at once: an answer is small, and who reads none has some hundreds waiting. Raises: OSError: it does not fit.
        if self._connection.send(answer, socket.MSG_DONTWAIT) != len(answer):
            raise BlockingIOError("the holder does not read")

    def _next(self) -> Rung | None:
        """The next ring; None: the connection has ended. Raises: BadRequest: what comes is no frame. OSError."""
        while len(self._read) < FRAME.size or len(self._read) < (end := self._end()):
            piece = self._connection.recv(_READ_BYTES)
            if not piece:
                return None
            self._read += piece
        frame, self._read = self._read[FRAME.size : end], self._read[end:]
        return unpack_rung(frame)

    def _end(self) -> int:
        length: int = FRAME.unpack_from(self._read)[0]
        if length > MAX_RUNG_BYTES:
            raise BadRequest("more than a doorbell takes")
        return FRAME.size + length


async def exactly(connection: socket.socket, count: int) -> bytes:
    """So many bytes. Raises: EOFError: it ends before."""
    data = b""
    while len(data) < count:
        piece = await asyncio.get_running_loop().sock_recv(connection, count - len(data))
        if not piece:
            raise EOFError
        data += piece
    return data
