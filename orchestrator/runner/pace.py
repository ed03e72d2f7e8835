"""When the next sealed checkpoint is due: not too often for the training, not too seldom for what a reset of the GPU would cost. Pure."""

from __future__ import annotations


class CheckpointPace:
    """Due when both are over: `interval_s`, and so much training that the last checkpoint was `share` of it.

    What one costs is not known before the first, which is therefore made after the interval, whatever it costs.

    Args:
        now: seconds, of the clock that `due` and `made` are given.
    """

    def __init__(self, interval_s: float, share: float, now: float) -> None:
        self._interval_s, self._share = interval_s, share
        self._made_at, self._cost_s, self._trained_s = now, 0.0, 0.0

    def trained(self, seconds: float) -> None:
        """The GPU trained for so long."""
        self._trained_s += seconds

    def due(self, now: float) -> bool:
        """Whether one is due."""
        return now - self._made_at >= self._interval_s and self._trained_s * self._share >= self._cost_s

    def made(self, now: float, cost_s: float) -> None:
        """There is one, which took `cost_s`."""
        self._made_at, self._cost_s, self._trained_s = now, cost_s, 0.0

    def not_needed(self, now: float) -> None:
        """The newest one holds the model already."""
        self._made_at = now
