"""Of which times a replay window has forgotten what it saw, run by run: a clock that is put back must not bring them up again. Knows no
clock and no table.

By runs, since a clock may also have been far ahead for a while: what was forgotten then says nothing of the time between.
"""

from __future__ import annotations

import math
from bisect import bisect_left, bisect_right
from itertools import pairwise
from typing import Final

NEAR_S: Final = 120.0
"""What lies no farther apart is one run, and counts as forgotten with all that is between."""
MOST_RUNS: Final = 256
"""Of more, the two that are nearest to each other become one: never is anything that was forgotten outside, and the widest gaps, such as
the one up to a time that the clock had only by mistake, stay open longest."""


class Forgotten:
    """Times are those at which nonces expire, in seconds since 1970."""

    def __init__(self) -> None:
        self._runs: list[tuple[float, float]] = []  # in order, apart

    @property
    def runs(self) -> tuple[tuple[float, float], ...]:
        """First and last time of each, in order."""
        return tuple(self._runs)

    def note(self, since: float, until: float | None = None) -> None:
        """What expired then, or from the one to the other, was forgotten."""
        until = since if until is None else until
        if self.may_hold(until) and self._at(since) == self._at(until):
            return
        first = bisect_left(self._runs, since - NEAR_S, key=lambda run: run[1])
        behind = bisect_right(self._runs, until + NEAR_S, key=lambda run: run[0])
        joined = self._runs[first:behind]
        self._runs[first:behind] = [
            (min([since, *(run[0] for run in joined)]), max([until, *(run[1] for run in joined)]))
        ]
        if len(self._runs) > MOST_RUNS:
            self._join_nearest()

    def may_hold(self, expires: float) -> bool:
        """Whether something that expires then may have been seen and forgotten."""
        place = self._at(expires)
        return place >= 0 and expires <= self._runs[place][1]

    def _at(self, expires: float) -> int:
        return bisect_right(self._runs, (expires, math.inf)) - 1

    def _join_nearest(self) -> None:
        gaps = [after[0] - before[1] for before, after in pairwise(self._runs)]
        place = gaps.index(min(gaps))
        self._runs[place : place + 2] = [(self._runs[place][0], self._runs[place + 1][1])]
