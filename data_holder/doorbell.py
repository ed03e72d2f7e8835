"""The holder's end of a bounce buffer's doorbell: places named on its connection, and what is answered. Knows no record and no HTTP.

Blocking, for the thread that seals: between two processes nothing is faster than that each thread speaks to the other's by itself. What
goes wrong here has no reason: the answer is "not taken", and the same places are named over HTTP, which says why. From then on nothing is
rung until `again`: what comes behind a record that was not taken must wait for it. A bell that breaks is another matter: nobody knows what
the agent has yet to read, so its connection is closed at once, which the agent sees before it looks at what was rung.
"""

from __future__ import annotations

import asyncio
import select
import socket
from collections.abc import Sequence
from contextlib import suppress

from shared.errors import BadRequest
from shared.service.logging import get_logger
from shared.wire.bounce import (
    FRAME,
    MAX_ANSWER_BYTES,
    MAX_RUNG_BYTES,
    BellAck,
    pack_rung,
    unpack_ack,
)

_log = get_logger("data_holder.bounce")
_READ_BYTES = 4096


class Doorbell:
    """For one visit. `turn`: another than any visit before had on this connection; `due`: rings without an answer yet."""

    def __init__(self, connection: socket.socket, turn: int) -> None:
        self._connection, self.turn, self.due = connection, turn, 0
        self._read, self._broken, self._refused = b"", False, False

    @property
    def open(self) -> bool:
        """Whether ringing may help."""
        return not self._broken and not self._refused

    @property
    def broken(self) -> bool:
        """Whether nobody knows what becomes of the rings without an answer."""
        return self._broken

    @property
    def silent(self) -> bool:
        """Whether nothing more will be answered."""
        return self._broken or not self.due

    @property
    def settled(self) -> bool:
        """Whether all that was rung was answered, so that the connection may serve another visit."""
        return not self._broken and not self.due and not self._read

    def ring(self, names: bytes, places: Sequence[tuple[int, int]], wait_ms: int = 0) -> bool:
        """Name places behind those named before, without waiting; whether that was said. `names`: GPU and port (`pack_names`);
        `wait_ms`: how long the agent may wait for the one to appear at the other."""
        frame = pack_rung(self.turn, wait_ms, names, places)
        if not self.open or len(frame) > MAX_RUNG_BYTES:
            return False
        try:
            # At once and whole: a frame is small, and few are under way.
            if self._connection.send(FRAME.pack(len(frame)) + frame) != FRAME.size + len(frame):
                raise BlockingIOError("the agent does not read")
        except OSError as error:
            self._break(error)
            return False
        self.due += 1
        return True

    def answers(self, wait_s: float) -> list[BellAck | None]:
        """What was answered since the last time, in the order of the rings: the last record's acknowledgement; None: not taken.
        Where there is none yet it waits for one, at most `wait_s` seconds."""
        found = self._answered() if not self._broken else []
        if not found and wait_s > 0 and not self.silent and self._come(wait_s):
            found = self._answered()
        return found

    async def rings(self, wait_s: float) -> None:
        """Until there may be something to read, at most so many seconds: for who has an event loop to wait on, and no thread."""
        loop, woken = asyncio.get_running_loop(), asyncio.Event()
        try:
            loop.add_reader(self._connection, woken.set)
        except (OSError, ValueError) as error:  # it was closed here
            self._break(error)
            return
        try:
            with suppress(TimeoutError):
                async with asyncio.timeout(wait_s):
                    await woken.wait()
        finally:
            loop.remove_reader(self._connection)

    def again(self) -> None:
        """What was not taken has been brought another way: ring on."""
        if self._refused and self.settled:
            self._refused, self.turn = False, self.turn + 1

    def give_up(self) -> None:
        """Nobody answers."""
        self._break(TimeoutError())

    def _come(self, wait_s: float) -> bool:
        """Whether there is something to read, or the end of the connection, within so many seconds."""
        if self._broken:
            return False
        waiting = select.poll()
        try:
            waiting.register(self._connection, select.POLLIN)
        except ValueError as error:  # it was closed here
            self._break(error)
            return False
        return bool(waiting.poll(wait_s * 1000))

    def _answered(self) -> list[BellAck | None]:
        found: list[BellAck | None] = []
        try:
            piece = self._connection.recv(_READ_BYTES)
            if not piece:
                raise EOFError("the agent hung up")
            self._read += piece
            while (answer := self._next()) is not None:
                self.due -= 1
                self._refused |= not answer
                found.append(unpack_ack(answer) if answer else None)
        except BlockingIOError:  # nothing yet
            pass
        except (OSError, EOFError, BadRequest) as error:
            self._break(error)
        return found

    def _next(self) -> bytes | None:
        """The next whole answer that was read. Raises: BadRequest: there is none to come, or none is so long."""
        if len(self._read) < FRAME.size:
            return None
        length = FRAME.unpack_from(self._read)[0]
        if length > MAX_ANSWER_BYTES or not self.due:
            raise BadRequest("the agent says something unasked")
        end = FRAME.size + length
        if len(self._read) < end:
            return None
        answer, self._read = self._read[FRAME.size : end], self._read[end:]
        return answer

    def _break(self, error: Exception) -> None:
        _log.info("the doorbell is broken: records go over HTTP", why=type(error).__name__)
        self._broken = True
        self._connection.close()
