"""The steps of a visit, or of a tour's end, that are timed: their names, in the order taken. Knows no clock, no storage and no metric."""

from __future__ import annotations

from collections.abc import Mapping

STEPS = (
    "plan", "grant", "offer", "provision", "report", "fence", "verify", "ahead", "train", "validate", "verdict", "epilogue", "close",
)  # fmt: skip


def in_order(taken: Mapping[str, float] | None) -> dict[str, float]:
    """Seconds by step, in the steps' order: what was read from the journal has its names sorted, as canonical JSON has them."""
    told = taken or {}
    return {step: told[step] for step in STEPS if step in told}
