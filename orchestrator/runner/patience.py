"""Whether another life may do better than the one that broke, and how long to wait for it. Knows no session and no clock."""

from __future__ import annotations

from orchestrator.in_clear import NOT_OURS
from shared.errors import Conflict, GputError, Unavailable
from shared.wire.gpu_answers import COMPUTE_OUTAGES

PATIENCE_S = (0.2, 0.5, 1.0, 2.0, 5.0)
MAX_CONFLICTS = 10
"""Lives that may break on a refusal (no port yet, a GPU just reset or without compute) between two closed visits before that is the
session's fault. Outages are no part of them: how long a service is away says nothing of what it answers."""


class Patience:
    """One session's. Forgets what was before the newest closed visit."""

    def __init__(self) -> None:
        self._failures = self._refusals = 0
        self._closed = -1

    def left(self, error: GputError, closed: int) -> float | None:
        """Seconds to wait before the next life; None: none would help.

        Args:
            error: what the life broke on.
            closed: visits that the session has closed.
        """
        if closed > self._closed:
            self._failures, self._refusals, self._closed = 0, 0, closed
        self._failures += 1
        refused = isinstance(error, Conflict) or (error.code in COMPUTE_OUTAGES and not isinstance(error, Unavailable))
        self._refusals += refused
        if refused and self._refusals > MAX_CONFLICTS:
            return None
        if not (refused or isinstance(error, Unavailable) or error.code in NOT_OURS):
            return None
        return PATIENCE_S[min(self._failures, len(PATIENCE_S)) - 1]
