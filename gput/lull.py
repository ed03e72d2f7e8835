"""Between two askings of a service that may bring nothing: longer and longer pauses, and an end to patience. Knows no service."""

from __future__ import annotations

import asyncio
import time

from shared.errors import Unavailable

FIRST_PAUSE_S, LONGEST_PAUSE_S = 0.1, 2.0


class Lull:
    """One watcher's pauses. `patience_s`: for how long it sits out what does not answer at all."""

    def __init__(self, patience_s: float) -> None:
        self._patience_s = patience_s
        self._since: float | None = None
        self._pause = FIRST_PAUSE_S

    def answered(self) -> None:
        """It has said something: patience begins anew with what breaks next."""
        self._since = None

    def news(self) -> None:
        """And that was new: the next pause is short."""
        self._since, self._pause = None, FIRST_PAUSE_S

    async def after(self, broke: Unavailable | None) -> None:
        """Pause. Raises: `broke`, once nothing answered for as long as there is patience."""
        now = time.monotonic()
        if broke is not None:
            self._since = now if self._since is None else self._since
            if now - self._since > self._patience_s:
                raise broke
        await asyncio.sleep(self._pause)
        self._pause = min(2 * self._pause, LONGEST_PAUSE_S)
