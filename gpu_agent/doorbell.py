"""The doorbell of a bounce buffer: places named on the connection that the buffer lives by. Knows no record, no port and no reason.

A request over HTTP costs more than opening a megabyte, so a holder rings several times before the first is answered. One rule keeps
that safe: once something was not taken, nothing rung in the same turn is looked at, for a record that comes before its turn ends the grant.
"""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Awaitable, Callable
from typing import Final

from shared.errors import BadRequest, GputError
from shared.service.logging import get_logger
from shared.wire.bounce import FRAME, MAX_RUNG_BYTES, Rung
from shared.wire.codec import decode, encode
from shared.wire.copy import CopyAck

Take = Callable[[str, Rung], Awaitable[CopyAck]]
"""Copies what lies at the places in the buffer of a name; the last one's acknowledgement. Raises: GputError: not all of them."""
NOT_TAKEN: Final = FRAME.pack(0)

_log = get_logger("bounce")


class Doorbell:
    """One connection's. `name`: of its buffer."""

    def __init__(self, connection: socket.socket, name: str, take: Take) -> None:
        self._connection, self._name, self._take = connection, name, take
        self._refused: int | None = None

    async def serve(self) -> None:
        """Answer until the connection ends. Raises: BadRequest: what comes is no frame. OSError."""
        loop = asyncio.get_running_loop()
        while True:
            try:
                length = FRAME.unpack(await exactly(self._connection, FRAME.size))[0]
                if length > MAX_RUNG_BYTES:
                    raise BadRequest("more than a doorbell takes")
                rung = decode(Rung, await exactly(self._connection, length))
            except EOFError:
                return
            await loop.sock_sendall(self._connection, await self._answer(rung))

    async def _answer(self, rung: Rung) -> bytes:
        if rung.turn == self._refused:
            return NOT_TAKEN
        try:
            answer = encode(await self._take(self._name, rung))
        except GputError:
            pass  # said over HTTP, where the same is asked again
        except Exception:  # a bug in here must not end the doors of other holders
            _log.exception("a doorbell's records were not taken")
        else:
            return FRAME.pack(len(answer)) + answer
        self._refused = rung.turn
        return NOT_TAKEN


async def exactly(connection: socket.socket, count: int) -> bytes:
    """So many bytes. Raises: EOFError: it ends before."""
    data = b""
    while len(data) < count:
        piece = await asyncio.get_running_loop().sock_recv(connection, count - len(data))
        if not piece:
            raise EOFError
        data += piece
    return data
