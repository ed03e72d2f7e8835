"""Command frames on their way in: how much memory all of them may hold, whoever sends them. Knows no frame's content.

A frame is believed once all of it is there, for its first byte and its last are under one tag: until then anybody may be sending it, on as
many connections as there may be. The orchestrator's is there in a moment; whose has been coming for longest is let go of first.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Final

from starlette.requests import Request

from shared.errors import Unavailable
from shared.wire.gpu import MAX_FRAME_BYTES

FRAMES_BYTES: Final = 8 * MAX_FRAME_BYTES


class _Arriving:
    """One frame. `size`: bytes that it counts for."""

    def __init__(self) -> None:
        self.data, self.size, self.let_go = bytearray(), 0, False


class FrameBodies:
    """All frames of a GPU agent that are coming or being answered. `held`: their bytes, at most `most`."""

    def __init__(self, most: int = FRAMES_BYTES) -> None:
        self._most, self.held = most, 0
        self._arriving: OrderedDict[_Arriving, None] = OrderedDict()

    @asynccontextmanager
    async def whole(self, request: Request, limit: int) -> AsyncIterator[bytes]:
        """A frame of at most `limit` bytes, all of it; it counts for as long as it is being answered.

        Raises:
            Unavailable: `too-many-frames`: there is no memory for it beside the others. HTTPException: 413, it is longer.
        """
        request.scope["gput.body_limit"].bytes = limit
        frame = _Arriving()
        self._arriving[frame] = None
        try:
            async for piece in request.stream():
                self._take(frame, piece)
            del self._arriving[frame]  # nobody lets go of what is whole
            body, frame.data = bytes(frame.data), bytearray()
            yield body
        finally:
            self._arriving.pop(frame, None)
            self.held -= frame.size

    def _take(self, frame: _Arriving, piece: bytes) -> None:
        if not frame.let_go:
            frame.data += piece
            frame.size += len(piece)
            self.held += len(piece)
        while self.held > self._most:
            self._let_go_of_the_oldest()
        if frame.let_go:
            raise Unavailable(
                "The GPU's agent has no memory for this frame beside the others that are coming in", code="too-many-frames",
                remedy="Send it again; where that repeats, see who else reaches the agent's ports.",
            )  # fmt: skip

    def _let_go_of_the_oldest(self) -> None:
        oldest, _ = self._arriving.popitem(last=False)
        self.held -= oldest.size
        oldest.data, oldest.size, oldest.let_go = bytearray(), 0, True
