"""Of which times a replay window has forgotten what it saw, hour by hour: a clock that is put back must not bring them up again. Knows no
clock and no table.

By the hour, since a clock may also have been far ahead for a while: what was forgotten then says nothing of the time between.
"""

from __future__ import annotations

from typing import Final

HOUR_S: Final = 3600.0
MOST_HOURS: Final = 1024
"""Hours with requests that are kept; of all that lies before the first of so many, everything counts as forgotten."""


class Forgotten:
    """Times are those at which nonces expire, in seconds since 1970."""

    def __init__(self) -> None:
        self._latest: dict[int, float] = {}
        self._first: int | None = None  # of those kept, once they are as many as may be

    @property
    def kept_from(self) -> float:
        """Marks of hours that begin before need not be kept any more; 0 while all are."""
        return 0.0 if self._first is None else self._first * HOUR_S

    def note(self, expires: float) -> None:
        """What expired then was forgotten."""
        hour = hour_of(expires)
        if hour in self._latest:
            self._latest[hour] = max(expires, self._latest[hour])
        elif self._first is None or hour > self._first:
            self._latest[hour] = expires
            if len(self._latest) > MOST_HOURS:
                del self._latest[min(self._latest)]
            if len(self._latest) == MOST_HOURS:
                self._first = min(self._latest)

    def may_hold(self, expires: float) -> bool:
        """Whether something that expires then may have been seen and forgotten."""
        hour = hour_of(expires)
        return (self._first is not None and hour < self._first) or expires <= self._latest.get(hour, 0.0)


def hour_of(expires: float) -> int:
    """Its number, from 1970 on."""
    return int(expires // HOUR_S)
