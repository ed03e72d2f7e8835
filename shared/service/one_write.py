"""An answer's head and the body that follows it at once leave in one write. Knows no HTTP.

uvicorn writes a head as soon as it is there and the body after it: two system calls, two packets, and a peer that is woken twice for
every request of a visit. Here a first write waits for the next one, and no longer than the event loop's turn: an answer whose body is
not there yet (a stream, a long-poll) has its head sent by then.
"""

from __future__ import annotations

import asyncio
from typing import Final

JOINED_BYTES: Final = 64 * 1024
"""A longer body is not copied to stand behind its head."""


class OneWrite(asyncio.Transport):
    """One answer's way to a connection's transport, as much of it as who answers needs."""

    def __init__(self, transport: asyncio.Transport, loop: asyncio.AbstractEventLoop) -> None:
        super().__init__()
        self._transport, self._loop = transport, loop
        self._held: bytes | None = None
        self._begun = False

    def write(self, data: bytes | bytearray | memoryview) -> None:
        """Send, in order; the first bytes with the next ones if those come within this turn of the loop."""
        held, self._held = self._held, None
        if not self._begun:
            self._begun, self._held = True, bytes(data)
            self._loop.call_soon(self._flush)
        elif held is None:
            self._transport.write(data)
        elif len(data) <= JOINED_BYTES:
            self._transport.write(held + data)
        else:
            self._transport.write(held)
            self._transport.write(data)

    def is_closing(self) -> bool:
        """Whether the connection ends."""
        return self._transport.is_closing()

    def close(self) -> None:
        """Close the connection, after what was written."""
        self._flush()
        self._transport.close()

    def _flush(self) -> None:
        held, self._held = self._held, None
        if held is not None and not self._transport.is_closing():
            self._transport.write(held)
