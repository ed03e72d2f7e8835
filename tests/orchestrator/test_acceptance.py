"""Whether an update looks like the session's others."""

from __future__ import annotations

import math

import pytest

from orchestrator.sessions.acceptance import newest, unusual, update_size
from shared.claims.manifest import Acceptance
from shared.claims.training import AdamW, Schedule, TrainingOptions, learning

RULE = Acceptance(max_update_ratio=4.0, history=3)


@pytest.mark.parametrize(
    ("size", "earlier", "strange"),
    [
        (4.0, [1.0, 1.0, 1.0], False), (4.1, [1.0, 1.0, 1.0], True), (9.0, [1.0, 1.0], False), (0.0, [1.0, 1.0, 1.0], False),
        (1.0, [0.0, 0.0, 0.0], True), (0.0, [0.0, 0.0, 0.0], False), (math.inf, [], True), (math.nan, [1.0, 1.0, 1.0], True),
        (5.0, [1.0, 2.0, 100.0], False),
    ],
)  # fmt: skip
def test_against_the_median(size: float, earlier: list[float], strange: bool) -> None:
    assert bool(unusual(size, earlier, RULE)) is strange


def test_no_limit_where_none_is_agreed() -> None:
    assert unusual(1e9, [1.0] * 9, Acceptance(max_update_ratio=None)) == ""
    assert unusual(math.inf, [1.0] * 9, Acceptance(max_update_ratio=None)) == "the update is not finite"


def test_the_schedule_does_not_make_an_update_strange() -> None:
    """A first visit in the warm-up and a last one in the decay move the model less; per unit of learning rate they are alike."""
    options = TrainingOptions(optimizer=AdamW(lr=0.1), schedule=Schedule(kind="linear", warmup_steps=4, total_steps=14))
    spent = [learning(options, first, 2, 14) for first in (0, 4, 12)]
    assert spent == pytest.approx([0.1 * (0.25 + 0.5), 0.1 * (1.0 + 0.9), 0.1 * (0.2 + 0.1)])
    assert [update_size(3.0 * part, part) for part in spent] == pytest.approx([3.0] * 3)
    assert update_size(3.0, 0.0) == 3.0


@pytest.mark.parametrize("history", [1, 64, 100, 1000])
def test_a_comparison_that_begins_late_begins(history: int) -> None:
    """However much history the manifest asks for, that much is remembered, and no more than is needed."""
    rule, kept = Acceptance(max_update_ratio=4.0, history=history), {}
    for index in range(2_000):
        assert bool(unusual(9.0, kept.values(), rule)) is (index >= history)
        kept = newest({**kept, index: 1.0}, rule)
    assert len(kept) == max(64, history)
    assert max(kept) == 1_999
