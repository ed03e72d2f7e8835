"""What holders hear once it is durable, at a moment when nobody waits for what they do then. Knows no inbox, no receipt and no step.

A holder that gets a receipt verifies it, writes it down and asks for more, 4 ms of a core and one of the orchestrator's: held until the
next training has begun, that stands in nobody's way (ADR 45). What is lost with the process was never more than a hint: receipts are
fetched from the log.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

HELD_S: Final = 0.05
"""How long something may be held; short visits are training by then, and of a long one's records this is nothing."""


@dataclass(frozen=True)
class Waiting:
    """Something for a holder's inbox that is said once what it speaks of is durable."""

    holder: str
    send: Callable[[], None]


class Outbox:
    """What one life's steps have staged for holders, in order. One holder hears in order."""

    def __init__(self) -> None:
        self._staged: list[Waiting] = []
        self._held: list[Waiting] = []
        self._timer: asyncio.TimerHandle | None = None

    def put(self, holder: str, send: Callable[[], None]) -> None:
        """Said after a commit that begins later than this."""
        self._staged.append(Waiting(holder, send))

    def taken(self) -> list[Waiting]:
        """What the commit that begins now makes durable; what is put from here on waits for another. Should it fail, nobody says it."""
        staged, self._staged = self._staged, []
        return staged

    def hold(self, durable: list[Waiting]) -> None:
        """Say it by `say`, or when it has been held for HELD_S."""
        self._held += durable
        if self._held and self._timer is None:
            self._timer = asyncio.get_running_loop().call_later(HELD_S, self.say)

    def say(self, first: Waiting | None = None) -> None:
        """Say what is held. With `first`, only that, and before it what is held for the same holder: the others' is no hurry."""
        now = [waiting for waiting in self._held if first is None or waiting.holder == first.holder]
        self._held = [waiting for waiting in self._held if waiting not in now]
        if self._timer is not None and not self._held:
            self._timer.cancel()
            self._timer = None
        for waiting in now if first is None else [*now, first]:
            waiting.send()
