"""Where the GPU of one life is: at our port, on its way to a holder's, or there. Knows the MUX and nobody's reasons.

A switch takes two calls, one behind the other (to the platform, from there to the agent), and depends on nothing else of a visit: so it
is begun as soon as it may be, and waited for where it is needed.
"""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any

from orchestrator.platform_link import Mux
from shared.errors import GputError
from shared.names import holder_port
from shared.service.logging import get_logger

_log = get_logger("visits")


class Journey:
    """One journey at a time.

    Args:
        home: held while the GPU is away or on its way: our port answers nobody then.
        away: whether the GPU travels at all; where it does not, every switch is over at once.
    """

    def __init__(self, mux: Mux, home: asyncio.Lock, *, away: bool) -> None:
        self._mux, self._home, self._away = mux, home, away
        self._holder = ""
        self._holds = False  # `home` is held, and by this journey
        self._switch: asyncio.Task[None] | None = None
        self._homeward: asyncio.Task[None] | None = None
        self._under_way: set[asyncio.Task[None]] = set()

    def begin(self, holder: str) -> None:
        """Have the GPU appear at the holder's port, in the background; begun already, it is the same journey."""
        if self._away and self._switch is None:
            self._holder = holder
            self._switch = self._beside(self._to(holder), "switch")

    def _beside(self, work: Coroutine[Any, Any, None], name: str) -> asyncio.Task[None]:
        task = asyncio.create_task(work, name=name)
        self._under_way.add(task)
        task.add_done_callback(self._under_way.discard)
        task.add_done_callback(heard)
        return task

    async def _to(self, holder: str) -> None:
        await self._home.acquire()
        self._holds = True
        try:
            await self._mux.to_holder(holder)
        except BaseException:
            self._let_go()
            raise

    def _let_go(self) -> None:
        if self._holds:
            self._holds = False
            self._home.release()

    async def arrived(self) -> None:
        """The switch that was begun is over. Raises: Unavailable, Refused: the platform did not do it."""
        if self._switch is not None:
            await asyncio.shield(self._switch)

    def found(self, port: str | None) -> None:
        """The GPU was seen at `port`. If it had arrived at a holder and that is not there, somebody else has switched the MUX, as a deposed
        orchestrator may that does not know it yet: send it there once more, in the background, or its holder waits until the lease ends."""
        sent = self._switch
        if sent is None or not sent.done() or sent.cancelled() or sent.exception() is not None:
            return  # it is at home, on its way, or went nowhere
        if port == holder_port(self._holder):
            return
        _log.warning(
            "the GPU was switched away from its holder; it is sent there again", holder=self._holder, found=port
        )
        self._switch = self._beside(self._again(self._holder), "switch again")

    async def _again(self, holder: str) -> None:
        try:
            await self._mux.to_holder(holder)
        except GputError as error:  # whoever looks next asks again
            _log.warning("the GPU could not be sent again", holder=holder, code=error.code, detail=error.detail)

    def turn_back(self) -> None:
        """Have the GPU appear at our port again, in the background, behind the switch that is under way; begun already, it is the same way
        home. One that does not travel is there."""
        if self._away and self._homeward is None:
            switch, self._switch = self._switch, None
            self._homeward = self._beside(self._to_home(switch), "switch home")

    async def _to_home(self, switch: asyncio.Task[None] | None) -> None:
        if switch is not None and not switch.done():  # to wait for what is over takes two turns of the loop
            await asyncio.wait([switch])
        await self._mux.home()
        self._let_go()

    async def back(self) -> None:
        """The GPU is at our port again; `turn_back`, where nobody did.

        Raises:
            Unavailable, Refused: the platform did not do it.
        """
        self.turn_back()
        homeward, self._homeward = self._homeward, None
        if homeward is not None:
            await homeward

    def give_up(self) -> None:
        """The life is over: no switch is left under way, and whoever waits at our port hears of it, wherever the GPU is."""
        for switch in self._under_way:
            switch.cancel()
        self._let_go()


def heard(done: asyncio.Future[Any]) -> None:
    """For what runs beside: whoever waits for it hears of its failure; where nobody does any more, the life was over before."""
    if not done.cancelled():
        done.exception()
