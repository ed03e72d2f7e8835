"""When the next sealed checkpoint is due: not too often for the training, not too seldom for what a reset of the GPU would cost. Pure."""

from __future__ import annotations

SEALED_BYTES_PER_S, SEALED_AT_LEAST_S = 35e6, 0.02
"""What sealing was measured to take from the GPU to the last byte on the disk, on two cores that others kept busy: slow, so that a guess
seldom falls short."""


def expected_cost(last_s: float | None, sealed_bytes: int) -> float:
    """Seconds that a session's next checkpoint will take: as long as its last one, in whichever life, or what so many bytes should."""
    return last_s if last_s is not None else SEALED_AT_LEAST_S + sealed_bytes / SEALED_BYTES_PER_S


class CheckpointPace:
    """Due when both are over: `interval_s`, and so much training that the last checkpoint was `share` of it.

    Args:
        now: seconds, of the clock that `due` and `made` are given.
        cost_s: what the first one of this life is expected to take, in the last one's place.
    """

    def __init__(self, interval_s: float, share: float, now: float, cost_s: float) -> None:
        self._interval_s, self._share = interval_s, share
        self._made_at, self._cost_s, self._trained_s = now, cost_s, 0.0

    def trained(self, seconds: float) -> None:
        """The GPU trained for so long."""
        self._trained_s += seconds

    def due(self, now: float, more_s: float = 0.0) -> bool:
        """Whether one is due; `more_s`: seconds that the GPU trained besides, of which `trained` was not told yet."""
        trained_s = self._trained_s + more_s
        return now - self._made_at >= self._interval_s and trained_s * self._share >= self._cost_s

    def made(self, now: float, cost_s: float) -> None:
        """There is one, which took `cost_s`."""
        self._made_at, self._cost_s, self._trained_s = now, cost_s, 0.0

    def not_needed(self, now: float) -> None:
        """The newest one holds the model already."""
        self._made_at = now
