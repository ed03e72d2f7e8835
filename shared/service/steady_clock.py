"""A clock that is believed about long ago once it has gone evenly with the machine's own timer for hours. Knows no row and no file.

What was kept long enough is removed for good, and how long it was kept is read from a clock that anybody may have set wrong for a moment:
a machine that starts before its time server answers, a mistyped year. Nothing that lies in the database tells a wrong clock from an honest
one after weeks of downtime; time that passes does. So nothing counts as old in the first hours of a process, nor in the hours after a step.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from typing import Final

from shared.service.clock import Clock
from shared.service.logging import get_logger

SETTLE_S: Final = 6 * 3600.0
"""Long enough for a time server or a person to set the clock right; short enough for a service that is started anew every night."""
STEP_S: Final = 60.0
"""Between two looks clock and timer may part by so much: more is no drift, and no time server's slewing."""
_log = get_logger("clock")


def uptime() -> float:
    """Seconds since the machine's start; nobody can set it. On Linux with those in which it slept: elsewhere sleep looks like a step."""
    return time.clock_gettime(getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC))


class SteadyClock:
    """One process's. Look at it often: a clock that was wrong between two looks only was never seen, and removed nothing."""

    def __init__(self, clock: Clock, timer: Callable[[], float] = uptime) -> None:
        self._clock, self._timer = clock, timer
        self._since = timer()
        self._apart = clock() - self._since

    def before(self, keep_s: float) -> float:
        """What was written then or earlier was kept for `keep_s` seconds; minus infinity while the clock is not believed.

        Whoever keeps things for less than `SETTLE_S` waits for no longer than that.
        """
        now, timer = self._clock(), self._timer()
        apart = now - timer
        if abs(apart - self._apart) > STEP_S:
            _log.warning(
                "the clock was set; nothing is removed for its age until it has gone evenly for a while",
                by_s=round(apart - self._apart), wait_s=SETTLE_S,
            )  # fmt: skip
            self._since = timer
        self._apart = apart
        return now - keep_s if timer - self._since >= min(SETTLE_S, keep_s) else -math.inf
