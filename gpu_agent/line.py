"""Who waits for a GPU's thread, in the order of their coming: of too many whoever has waited longest is let go of. Knows no frame.

What is let go of leaves nothing behind for the thread: it was not handed to it yet, so its memory is free at once.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Final, TypeVar

from shared.errors import Unavailable

MAX_WAITING: Final = 32
T = TypeVar("T")


class Line:
    """Before one thread, which does one thing at a time. Belongs to one event loop."""

    def __init__(self, thread: ThreadPoolExecutor) -> None:
        self._thread, self._taken = thread, False
        self._waiting: OrderedDict[asyncio.Future[None], None] = OrderedDict()

    async def act(self, act: Callable[[], T]) -> T:
        """What `act` gives on the thread, once it is its turn. Raises: Unavailable `too-many-frames`; and what `act` raises."""
        if self._taken:
            await self._turn()
        self._taken = True
        try:
            return await asyncio.get_running_loop().run_in_executor(self._thread, act)
        finally:
            self._next()

    async def _turn(self) -> None:
        turn = asyncio.get_running_loop().create_future()
        self._waiting[turn] = None
        if len(self._waiting) > MAX_WAITING:
            oldest, _ = self._waiting.popitem(last=False)
            oldest.set_exception(_let_go())
        try:
            await turn
        except asyncio.CancelledError:
            if (
                turn.done() and not turn.cancelled() and turn.exception() is None
            ):  # whose turn it was goes away: it is the next one's
                self._next()
            raise
        finally:
            self._waiting.pop(turn, None)

    def _next(self) -> None:
        self._taken = False
        while self._waiting:
            turn, _ = self._waiting.popitem(last=False)
            if not turn.done():
                turn.set_result(None)
                self._taken = True  # from now on: nobody who comes meanwhile goes first
                return


def _let_go() -> Unavailable:
    return Unavailable(
        "The GPU's agent lets no more frames wait than there are already, and this one has waited longest", code="too-many-frames",
        remedy="Send it again; where that repeats, see who else reaches the agent's ports.",
    )  # fmt: skip
