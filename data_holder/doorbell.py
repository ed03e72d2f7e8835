"""A bounce buffer's doorbell, the holder's end: several places under way at once, answered in order. Knows no record and no retry.

Whatever goes wrong here ends in one word, "not taken": who hears it names the same places over HTTP, which says why. From then on
nothing is rung until `again`: what comes behind a record that was not taken must wait for it.
"""

from __future__ import annotations

import asyncio
import socket
from collections import deque

from shared.errors import BadRequest
from shared.service.logging import get_logger
from shared.wire.bounce import FRAME, MAX_ANSWER_BYTES, MAX_RUNG_BYTES, Places, Rung
from shared.wire.codec import encode

_log = get_logger("data_holder.bounce")
_READ_BYTES = 64 * 1024
Answer = asyncio.Future[bytes | None]


class Doorbell:
    """For one visit. `turn`: another than any visit before had on this connection."""

    def __init__(self, connection: socket.socket, turn: int) -> None:
        self._connection, self._descriptor, self.turn = connection, connection.fileno(), turn
        self._due: deque[Answer] = deque()
        self._read, self._broken, self._refused = b"", False, False
        asyncio.get_running_loop().add_reader(self._descriptor, self._readable)

    @property
    def open(self) -> bool:
        """Whether ringing may help."""
        return not self._broken and not self._refused

    @property
    def settled(self) -> bool:
        """Whether all that was rung was answered, so that the connection may serve another visit."""
        return not self._broken and not self._due and not self._read

    def ring(self, gpu: str, port: str, places: Places, *, timeout_s: float) -> Answer:
        """Name places behind those named before. The answer is the last record's acknowledgement (CBOR); None: not taken, or none within
        `timeout_s`."""
        loop = asyncio.get_running_loop()
        answer: Answer = loop.create_future()
        frame = encode(Rung(gpu=gpu, port=port, turn=self.turn, places=places))
        if not self.open or len(frame) > MAX_RUNG_BYTES:
            answer.set_result(None)
            return answer
        late = loop.call_later(timeout_s, self._break, TimeoutError())
        answer.add_done_callback(lambda _: late.cancel())
        self._due.append(answer)
        try:
            # At once and whole: a frame is small, and few are under way.
            if self._connection.send(FRAME.pack(len(frame)) + frame) != FRAME.size + len(frame):
                raise BlockingIOError("the agent does not read")
        except OSError as error:
            self._break(error)
        return answer

    def again(self) -> None:
        """What was not taken has been brought another way: ring on."""
        if self._refused and self.settled:
            self._refused, self.turn = False, self.turn + 1

    def close(self) -> None:
        """No more is rung."""
        asyncio.get_running_loop().remove_reader(self._descriptor)
        for waiting in self._due:
            waiting.cancel()

    def _readable(self) -> None:
        try:
            piece = self._connection.recv(_READ_BYTES)
            if not piece:
                raise EOFError("the agent hung up")
            self._read += piece
            self._answered()
        except BlockingIOError:
            return
        except (OSError, EOFError, BadRequest) as error:
            self._break(error)

    def _answered(self) -> None:
        while len(self._read) >= FRAME.size:
            length = FRAME.unpack_from(self._read)[0]
            if length > MAX_ANSWER_BYTES or not self._due:
                raise BadRequest("the agent says something unasked")
            if len(self._read) < FRAME.size + length:
                return
            answer, self._read = self._read[FRAME.size : FRAME.size + length], self._read[FRAME.size + length :]
            self._refused |= not answer
            waiting = self._due.popleft()
            if not waiting.done():
                waiting.set_result(answer or None)

    def _break(self, error: Exception) -> None:
        _log.info("the doorbell is broken: places are named over HTTP", why=type(error).__name__)
        self._broken = True
        asyncio.get_running_loop().remove_reader(self._descriptor)
        for waiting in self._due:
            if not waiting.done():
                waiting.set_result(None)
