"""The accountant against closed forms, against an integral that knows no formula of it, and against the plans' own orders."""

from __future__ import annotations

import math
from collections import Counter
from typing import Any, Literal

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from shared.claims.accountant import delta_of, epsilon_of, over_budget, privacy_findings, spent, weight
from shared.claims.manifest import Manifest, RosterEntry
from shared.claims.privacy import Privacy
from shared.claims.visit import CursorRange
from shared.protocol.record_order import records_of
from tests.orchestrator.orchestrator_samples import EMULATED, key, manifest

PRIVACY = Privacy(max_grad_norm=1.0, noise_multiplier=2.0, delta=1e-5)


def integrated(epsilon: float, deviation: float) -> float:
    """Delta as what it is: the integral of max(0, p − e^ε q) over two Gaussians a sensitivity of 1 apart."""
    x = np.linspace(-12 * deviation, 1 + 12 * deviation, 2_000_001)
    p = np.exp(-((x - 1) ** 2) / (2 * deviation**2))
    q = np.exp(epsilon - x**2 / (2 * deviation**2))
    return float(np.trapezoid(np.maximum(p - q, 0), x)) / (deviation * math.sqrt(2 * math.pi))


@pytest.mark.parametrize("deviation", [0.3, 0.7, 1.0, 3.0, 11.0])
@pytest.mark.parametrize("epsilon", [0.0, 0.1, 1.0, 4.0, 20.0])
def test_delta_is_the_integral_of_the_privacy_loss(epsilon: float, deviation: float) -> None:
    assert delta_of(epsilon, deviation) == pytest.approx(integrated(epsilon, deviation), rel=1e-6, abs=1e-15)


@pytest.mark.parametrize(
    ("epsilon", "deviation", "delta"),
    [
        (0.0, 1.0, 0.382924922548026),  # 2Φ(1/2) − 1
        (0.0, 0.5, 0.682689492137086),  # 2Φ(1) − 1: one standard deviation
        (1.0, 1.0, 0.126936737507257),  # Φ(−1/2) − e Φ(−3/2)
    ],
)
def test_closed_forms(epsilon: float, deviation: float, delta: float) -> None:
    assert delta_of(epsilon, deviation) == pytest.approx(delta, rel=1e-12)
    assert epsilon_of(delta, deviation) == pytest.approx(epsilon, abs=1e-9)


@given(st.floats(1e-3, 1e6), st.floats(1e-12, 1e-3))
def test_epsilon_is_the_least_that_holds(deviation: float, delta: float) -> None:
    """From almost no noise, where epsilon is half a million, to so much that it is nothing: nothing overflows."""
    epsilon = epsilon_of(delta, deviation)
    assert delta_of(epsilon, deviation) <= delta
    if epsilon:
        assert delta_of(epsilon * (1 - 1e-9), deviation) >= delta * (1 - 1e-6)
    assert epsilon_of(delta, deviation * 1.01) <= epsilon
    assert epsilon_of(delta / 2, deviation) >= epsilon


def test_it_is_tighter_than_the_textbook_and_not_too_good() -> None:
    """Dwork and Roth, theorem A.1: σ ≥ √(2 ln(1.25/δ))/ε is enough for ε ≤ 1; what is exact must be less, and not by half."""
    for epsilon, delta in ((0.2, 1e-5), (0.9, 1e-6)):
        deviation = math.sqrt(2 * math.log(1.25 / delta)) / epsilon
        assert epsilon / 2 < epsilon_of(delta, deviation) < epsilon


@settings(max_examples=200, deadline=None)
@given(
    st.integers(1, 12), st.integers(1, 30), st.integers(1, 12), st.sampled_from(["sequential", "shuffled"]), st.integers(0, 9)
)  # fmt: skip
def test_no_record_takes_part_more_than_is_counted(
    steps: int, records: int, batch: int, order: Literal["sequential", "shuffled"], seed: int
) -> None:
    positions = steps * batch
    drawn = records_of(CursorRange(start=0, count=positions, order=order, seed=seed), records)
    sums: Counter[int] = Counter()
    for step in range(steps):
        sums.update({r: m * m for r, m in Counter(drawn[step * batch : (step + 1) * batch].tolist()).items()})
    counted = weight(positions, records, batch, order)
    assert max(sums.values()) <= counted
    if order == "sequential" and batch <= records:
        assert max(sums.values()) == counted, "and no less, where it is said to be exact"


def agreed(**changes: Any) -> Manifest:
    """Three rounds of two steps of four: 24 positions a holder."""
    return manifest(**({"privacy": PRIVACY} | changes))


def test_a_plan_spends_by_how_often_a_record_takes_part() -> None:
    for records, times in ((24, 1), (12, 2), (8, 3), (7, 4)):
        found = spent(agreed(), "h0", 3, records)
        assert found is not None
        assert found.epsilon == pytest.approx(epsilon_of(1e-5, 2.0 / math.sqrt(times)), abs=1e-4)
        assert found.epsilon >= epsilon_of(1e-5, 2.0 / math.sqrt(times)), "rounded to the safe side"
    assert spent(agreed(), "h0", 0, 8) == spent(agreed(), "h1", 0, 24), "nothing, before the first visit"
    assert spent(agreed(), "h0", 1, 8) == spent(agreed(), "h0", 3, 24), "a record that took part once"
    assert spent(agreed(privacy=None), "h0", 3, 24) is None
    twice = (RosterEntry(holder="h0", key=key(1).fingerprint, steps_per_visit=4, evidence=EMULATED),)
    assert spent(agreed(roster=twice), "h0", 3, 24) == spent(agreed(), "h0", 3, 12)


def test_a_shuffled_step_over_a_border_counts_a_record_twice_over() -> None:
    even, odd = (spent(agreed(record_order="shuffled"), "h0", 3, records) for records in (12, 13))
    assert even is not None
    assert odd is not None
    assert even.epsilon == pytest.approx(epsilon_of(1e-5, 2.0 / math.sqrt(2)), abs=1e-4)
    assert odd.epsilon == pytest.approx(epsilon_of(1e-5, 2.0 / math.sqrt(4)), abs=1e-4)


def test_what_exceeds_the_budget_is_said_with_both_numbers() -> None:
    limited = agreed(privacy=PRIVACY.model_copy(update={"max_epsilon": 3.0}))
    once = spent(limited, "h0", 3, None)
    assert once is not None
    assert once.epsilon < 3
    assert list(privacy_findings(limited)) == []
    assert over_budget(limited, "h0", 24) == ""
    too_few = over_budget(limited, "h0", 8)
    found = spent(limited, "h0", 3, 8)
    assert found is not None
    assert f"epsilon {found.epsilon:g}" in too_few
    assert "max_epsilon is 3" in too_few
    assert "h0 with 8 records" in too_few
    (finding,) = privacy_findings(agreed(privacy=PRIVACY.model_copy(update={"max_epsilon": 1.0})))
    assert (finding.field, finding.code) == ("privacy.max_epsilon", "privacy-budget")
    assert f"epsilon {once.epsilon:g}" in finding.reason
    assert "max_epsilon is 1" in finding.reason


def test_a_delta_that_would_let_a_record_out_is_refused() -> None:
    coarse = agreed(privacy=Privacy(max_grad_norm=1.0, noise_multiplier=5.0, delta=1e-3))
    assert over_budget(coarse, "h0", 900) == ""
    assert "told outright" in over_budget(coarse, "h0", 1000)


def test_without_privacy_a_manifest_is_what_it_was() -> None:
    before = manifest()
    assert b'privacy"' not in before.canonical()
    assert Manifest.model_validate(before.model_dump(mode="json")).digest() == before.digest()
    after = agreed()
    assert after.digest() != before.digest()
    assert Manifest.model_validate(after.model_dump(mode="json")) == after
