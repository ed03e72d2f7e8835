"""The doorbell of a bounce buffer: places named on the connection that the buffer lives by. Knows no record, no port and no reason.

A request over HTTP costs more than opening a megabyte, and so does handing each ring from a socket's event loop to the thread that copies
and its answer back. So that thread stays at a bell that rings: it reads the next frame itself, until none comes for STAY_S. One rule keeps
several rings under way safe: once something was not taken, nothing rung in the same turn is looked at, for a record that comes before its
turn ends the grant.
"""

from __future__ import annotations

import asyncio
import select
import socket
import time
from collections.abc import Awaitable, Callable
from typing import Final, Protocol

from shared.errors import BadRequest, GputError
from shared.service.logging import get_logger
from shared.wire.bounce import FRAME, MAX_RUNG_BYTES, Rung
from shared.wire.codec import decode, encode
from shared.wire.copy import CopyAck

STAY_S: Final = 0.005
"""How long a copy thread waits for the next ring. Whoever else wants copies of that GPU waits so long at most once nobody rings."""
MOST_RINGS: Final = 256
"""Then others come first who wait for that thread."""
NOT_TAKEN: Final = FRAME.pack(0)
_READ_BYTES: Final = 4096

_log = get_logger("bounce")


class Copies(Protocol):
    """Where records are copied."""

    def attend(self, gpu: str, work: Callable[[], None]) -> Awaitable[None]:
        """Run `work` on the thread that makes a GPU's copies. Raises: GputError: there is no such GPU."""

    def copy(self, name: str, rung: Rung) -> CopyAck:
        """Blocking, on that thread: copy what lies at the places in the buffer of a name; the last one's acknowledgement.

        Raises:
            GputError: not all of them.
        """


class Doorbell:
    """One connection's. `name`: of its buffer. Used by the event loop and by a copy thread in turn, never by both."""

    def __init__(self, connection: socket.socket, name: str, copies: Copies) -> None:
        self._connection, self._name, self._copies = connection, name, copies
        self._read = b""
        self._refused: int | None = None

    async def serve(self) -> None:
        """Answer until the connection ends. Raises: BadRequest: what comes is no frame. OSError."""
        while True:
            rung = self._next()
            if rung is not None:
                await self._attended(rung)
                continue
            piece = await asyncio.get_running_loop().sock_recv(self._connection, _READ_BYTES)
            if not piece:
                return
            self._read += piece

    async def _attended(self, rung: Rung) -> None:
        try:
            await self._copies.attend(rung.gpu, lambda: self._stay(rung))
        except OSError:
            raise
        except GputError:
            self._refuse(rung)
        except Exception:  # a bug in here must not end the doors of other holders
            _log.exception("a doorbell was not attended to")
            self._refuse(rung)

    def _stay(self, rung: Rung) -> None:
        """Answer a ring, and those that follow for the same GPU. On the copy thread. Raises: OSError."""
        following: Rung | None = rung
        for left in reversed(range(MOST_RINGS)):
            if following is None or not self._answer(following) or not left or not self._comes():
                return
            try:
                following = self._next(rung.gpu)
            except BadRequest:
                return  # `serve` meets it again

    def _answer(self, rung: Rung) -> bool:
        """Whether it was taken and more may follow."""
        if rung.turn != self._refused:
            try:
                ack = self._copies.copy(self._name, rung)
            except GputError:
                pass  # said over HTTP, where the same is asked again
            except Exception:  # as in `_attended`: said to nobody but the log
                _log.exception("a doorbell's records were not taken")
            else:
                answer = encode(ack)
                self._say(FRAME.pack(len(answer)) + answer)
                return not ack.published
        self._refuse(rung)
        return False

    def _refuse(self, rung: Rung) -> None:
        self._refused = rung.turn
        self._say(NOT_TAKEN)

    def _say(self, answer: bytes) -> None:
        # Whole and at once: an answer is small, and who reads none has some hundreds waiting. Raises: OSError: it does not fit.
        if self._connection.send(answer) != len(answer):
            raise BlockingIOError("the holder does not read")

    def _next(self, gpu: str | None = None) -> Rung | None:
        """The next ring that was read whole; None: there is none, or it is for another GPU than `gpu`. Raises: BadRequest."""
        if not self._whole():
            return None
        length = FRAME.unpack_from(self._read)[0]
        if length > MAX_RUNG_BYTES:
            raise BadRequest("more than a doorbell takes")
        end = FRAME.size + length
        rung = decode(Rung, self._read[FRAME.size : end])
        if gpu is not None and rung.gpu != gpu:
            return None
        self._read = self._read[end:]
        return rung

    def _comes(self) -> bool:
        """Whether a whole frame lies here, or does within STAY_S. Raises: OSError."""
        until, waiting = time.monotonic() + STAY_S, select.poll()
        waiting.register(self._connection, select.POLLIN)
        while not self._whole():
            left = until - time.monotonic()
            piece = self._connection.recv(_READ_BYTES) if left > 0 and waiting.poll(left * 1000) else b""
            if not piece:
                return False  # late; or the connection has ended, which `serve` finds out
            self._read += piece
        return True

    def _whole(self) -> bool:
        """Whether there is a whole frame, or the beginning of none."""
        if len(self._read) < FRAME.size:
            return False
        length: int = FRAME.unpack_from(self._read)[0]
        return length > MAX_RUNG_BYTES or len(self._read) >= FRAME.size + length


async def exactly(connection: socket.socket, count: int) -> bytes:
    """So many bytes. Raises: EOFError: it ends before."""
    data = b""
    while len(data) < count:
        piece = await asyncio.get_running_loop().sock_recv(connection, count - len(data))
        if not piece:
            raise EOFError
        data += piece
    return data
