"""Whether an update looks like the session's other ones. Pure: numbers in, a reason out. Knows no GPU and no holder."""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping
from statistics import median

from shared.claims.manifest import Acceptance

REMEMBERED = 64
"""Accepted updates that the comparison looks back on; more where the manifest's rule begins with more."""


def update_size(norm: float, learning: float) -> float:
    """Norm of a visit's parameter changes per unit of learning rate: comparable between visits of other lengths and schedules."""
    return norm / learning if learning > 0 else norm


def newest(updates: Mapping[int, float], rule: Acceptance) -> dict[int, float]:
    """Of the sizes of accepted updates, by index, those that the comparison needs."""
    return dict(sorted(updates.items())[-max(REMEMBERED, rule.history) :])


def unusual(size: float, earlier: Collection[float], rule: Acceptance) -> str:
    """Why an update of this size is not accepted; "" if it is.

    Args:
        size, earlier: as `update_size` gives them.
    """
    if not math.isfinite(size):
        return "the update is not finite"
    if rule.max_update_ratio is None or len(earlier) < rule.history:
        return ""
    usual = median(earlier)
    if size <= rule.max_update_ratio * usual:
        return ""
    times = size / usual if usual else math.inf
    return f"the update is {times:.3g} times as large as the session's others, more than {rule.max_update_ratio:g}"
