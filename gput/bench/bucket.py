"""A token bucket: how long bytes wait for a link of a given rate. Arithmetic on times that it is told; knows no clock and no socket."""

from __future__ import annotations

FRAME_BYTES = 1500
GRAIN_S = 0.002
"""A link that was idle passes at once what it would have passed in this time (or one Ethernet frame): a process does not wake more exactly
than that. So no message gains more than this."""
MEGABIT = 1_000_000 / 8


def bytes_per_s(mbit: float | None) -> float | None:
    """Mbit/s as bytes a second; None: not capped."""
    return None if mbit is None else mbit * MEGABIT


class Bucket:
    """One direction of a link. `rate`: bytes a second, None: not capped.

    Bytes may be taken before there are tokens for them: the bucket then owes, and who took them waits. So the order of taking is the order
    of passing, whoever shares the link, and no piece is too large.
    """

    def __init__(self, rate: float | None = None) -> None:
        self.rate: float | None = None
        self._tokens = self._at = self._depth = 0.0
        self.set_rate(rate, 0.0)

    @property
    def depth(self) -> float:
        """Bytes that pass at once after a pause."""
        return self._depth

    def set_rate(self, rate: float | None, now: float) -> None:
        """Another rate from `now` on; what is owed is forgiven. Raises: ValueError: no rate above zero."""
        if rate is not None and rate <= 0:
            raise ValueError("a link's rate is above zero")
        self.rate, self._at = rate, now
        self._depth = self._tokens = 0.0 if rate is None else max(FRAME_BYTES, rate * GRAIN_S)

    def take(self, size: int, now: float) -> float:
        """Take `size` bytes that came at time `now` (seconds); how many seconds from then they have to wait before they may pass."""
        if self.rate is None:
            return 0.0
        earned = max(0.0, now - self._at) * self.rate
        self._tokens, self._at = min(self._depth, self._tokens + earned) - size, max(self._at, now)
        return max(0.0, self._at - now - self._tokens / self.rate)
