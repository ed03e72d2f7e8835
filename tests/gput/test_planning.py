"""The visit planner's sums: costs told from visits exactly where nothing disturbs them, predictions that only fall, the fewest steps."""

from __future__ import annotations

import itertools
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gput.planning import (
    LEAST_VISITS,
    RECENCY,
    Costs,
    Visit,
    Work,
    calibrate,
    fewest,
    lengths,
    predict,
    reason,
)
from gput.tours import Tours
from orchestrator.api.examples import VISIT
from shared.errors import BadRequest

COSTS = Costs(control_s=0.2, data_fixed_s=0.05, byte_s=1e-8, train_fixed_s=0.03, step_s=0.03)
WORK = Work(steps=1000, holders=3, records_per_step=16, record_bytes=65)

seconds = st.floats(0, 10).map(lambda value: round(value, 6))
costs = st.builds(
    Costs, control_s=seconds, data_fixed_s=seconds, byte_s=st.floats(0, 1e-5), train_fixed_s=seconds,
    step_s=st.floats(1e-5, 10), check_s=st.none() | seconds, tour_s=st.none() | seconds,
)  # fmt: skip
works = st.builds(
    Work, steps=st.integers(1, 10**6), holders=st.integers(1, 256), records_per_step=st.integers(1, 256),
    record_bytes=st.integers(1, 10**6), every_visits=st.none() | st.integers(1, 50), tours=st.none() | st.sampled_from(Tours),
)  # fmt: skip


def visit(of: Costs, steps: int, step_bytes: int, disturbed: float = 0.0) -> Visit:
    length = steps * step_bytes
    data = length * of.byte_s
    return Visit(
        steps=steps, length=length, control_s=of.control_s + disturbed, provision_s=of.data_fixed_s + data + disturbed, data_s=data,
        train_s=of.train_fixed_s + steps * of.step_s + disturbed, check_s=of.check_s,
    )  # fmt: skip


def same(found: Costs, wanted: Costs) -> None:
    whole = wanted.visit_s + wanted.step_s + 1e-6
    for name in ("control_s", "data_fixed_s", "train_fixed_s", "step_s"):
        assert getattr(found, name) == pytest.approx(getattr(wanted, name), rel=1e-6, abs=1e-9 * whole), name
    assert found.byte_s == pytest.approx(wanted.byte_s, rel=1e-6, abs=1e-9 * whole)
    assert found.check_s == wanted.check_s


@given(costs, st.lists(st.integers(1, 64), min_size=2, max_size=5, unique=True), st.integers(1000, 10**6))
def test_undisturbed_visits_tell_exactly_what_they_cost(truth: Costs, of_steps: list[int], step_bytes: int) -> None:
    same(calibrate([visit(truth, steps, step_bytes) for steps in of_steps for _ in range(3)]), truth)


@given(costs, st.integers(1, 64), st.integers(1000, 10**6))
def test_visits_of_one_length_do_where_a_steps_time_is_known(truth: Costs, steps: int, step_bytes: int) -> None:
    same(calibrate([visit(truth, steps, step_bytes)] * LEAST_VISITS, truth.step_s), truth)


def test_single_disturbed_visits_change_nothing() -> None:
    visits = [visit(COSTS, steps, 1000) for steps in (1, 4, 16) for _ in range(5)]
    visits += [visit(COSTS, 4, 1000, disturbed=60.0), visit(COSTS, 16, 1000, disturbed=7.0)]
    same(calibrate(visits), COSTS)


@pytest.mark.parametrize(("visits", "code"), [
    ([], "too-few-visits"),
    ([visit(COSTS, steps, 1000) for steps in (1, 1, 1, 4, 4)], "too-few-visits"),
    ([visit(COSTS, 4, 1000)] * 50, "one-length"),
    ([visit(COSTS, steps, 1000) for steps in (1, 2, 3, 4, 5, 6, 6)], "one-length"),
    ([visit(COSTS, 4, 1000)] * 50 + [visit(COSTS, 1, 1000)], "one-length"),
    ([visit(COSTS, 4, 1000)] * 3 + [visit(COSTS, 1, 1000, disturbed=9.0)] * 3, "no-training"),
])  # fmt: skip
def test_visits_that_say_too_little_are_refused(visits: list[Visit], code: str) -> None:
    with pytest.raises(BadRequest) as refused:
        calibrate(visits)
    assert refused.value.code == code
    assert refused.value.remedy


noise = st.floats(0, 5)
some_visits = st.lists(
    st.builds(
        Visit, steps=st.sampled_from([1, 4, 16]), length=st.sampled_from([100, 400, 1600]), control_s=noise, provision_s=noise,
        data_s=noise, train_s=noise, check_s=st.none() | noise,
    ), min_size=LEAST_VISITS, max_size=20,
)  # fmt: skip


@given(some_visits, st.none() | st.floats(1e-6, 5))
def test_whatever_was_measured_no_cost_is_below_nothing(visits: list[Visit], step_s: float | None) -> None:
    found = costs_or_refusal(visits, step_s)
    if isinstance(found, BadRequest):
        assert step_s is None
        assert found.code in ("one-length", "no-training")
    else:
        assert min(found.control_s, found.data_fixed_s, found.byte_s, found.train_fixed_s) >= 0
        assert found.step_s > 0


def costs_or_refusal(visits: list[Visit], step_s: float | None) -> Costs | BadRequest:
    try:
        return calibrate(visits, step_s)
    except BadRequest as refused:
        return refused


@given(costs, works)
def test_longer_visits_cost_no_more(of: Costs, work: Work) -> None:
    found = [predict(of, work, length) for length in lengths(work)]
    for short, long in itertools.pairwise(found):
        assert long.overhead <= short.overhead + 1e-9
        assert long.wall_s <= short.wall_s * (1 + 1e-9)
        assert long.visits <= short.visits
        assert long.buffer_bytes > short.buffer_bytes
    assert all(-1e-12 <= one.overhead <= 1 for one in found)
    assert all(one.rounds * one.steps_per_visit * work.holders >= work.steps for one in found)


@given(costs, works, st.floats(0.001, 0.999))
def test_the_fewest_steps_keep_the_share_and_one_less_does_not(of: Costs, work: Work, share: float) -> None:
    chosen = fewest(of, work, share)
    if chosen is None:
        assert predict(of, work, work.longest).overhead > share
        assert "even one visit to each holder" in reason(of, work, share, None)
        return
    assert 1 <= chosen <= work.longest
    assert predict(of, work, chosen).overhead <= share
    assert chosen == 1 or predict(of, work, chosen - 1).overhead > share
    line = reason(of, work, share, chosen)
    assert f"{chosen} steps are the fewest" in line
    assert "\n" not in line


@given(costs, works, st.floats(0.001, 0.999), st.floats(0.001, 0.999))
def test_who_bears_more_overhead_needs_no_longer_visits(of: Costs, work: Work, one: float, other: float) -> None:
    strict, lax = (fewest(of, work, share) for share in sorted((one, other)))
    if strict is not None:
        assert lax is not None
        assert lax <= strict


def test_a_prediction_by_hand() -> None:
    of = Costs(control_s=1.0, data_fixed_s=0.5, byte_s=0.001, train_fixed_s=0.5, step_s=0.9, check_s=4.0)
    work = Work(steps=100, holders=2, records_per_step=10, record_bytes=10, every_visits=2)
    found = predict(of, work, 10)
    # A visit: 2 s anyway, 10 × (0.9 + 0.1) s, half a check of 4 s: 14 s, of which 9 train.
    assert found.overhead == pytest.approx(5 / 14)
    assert (found.visits, found.rounds, found.buffer_bytes) == (10, 5, 1000)
    assert found.wall_s == pytest.approx(10 * 2 + 5 * 4 + 100)
    uneven = predict(of, work, 30)
    assert (uneven.visits, uneven.rounds) == (4, 2)
    assert uneven.wall_s == pytest.approx(4 * 2 + 2 * 4 + 100)


@pytest.mark.parametrize(("of", "share", "says"), [
    (COSTS, 0.1, "85 steps are the fewest with at most 10.0% overhead"),
    (COSTS, 0.99, "1 steps are the fewest"),
    (Costs(0.1, 0.0, 1e-4, 0.0, 0.01), 0.1, "the records alone take more"),
    (Costs(900.0, 0.0, 0.0, 0.0, 0.01), 0.1, "too few steps"),
])  # fmt: skip
def test_the_recommendation_says_why(of: Costs, share: float, says: str) -> None:
    assert says in reason(of, WORK, share, fewest(of, WORK, share))


def test_lengths_worth_a_line() -> None:
    assert lengths(Work(600, 3, 1, 1), 78, None) == [1, 2, 5, 10, 20, 40, 78, 80, 160, 200]
    assert lengths(Work(2, 2, 1, 1), 40) == [1]


def test_figures_come_back_as_costs() -> None:
    found = Costs.measured(COSTS.named(), COSTS.step_s)
    same(found, COSTS)
    with pytest.raises(KeyError):
        Costs.measured({"control_ms": 1.0}, 1.0)


def test_a_visit_is_read_from_the_api() -> None:
    view: dict[str, Any] = {
        **VISIT, "validation_after": None,
        "durations": {"plan": 0.1, "grant": 0.2, "provision": 1.0, "train": 2.0, "validate": 0.25, "close": 0.3},
    }  # fmt: skip
    found = Visit.of(view)
    assert found == Visit(10, 5200, pytest.approx(0.6), 1.0, pytest.approx(0.003), 2.0, None)
    assert Visit.of({**view, "validation_after": 5.2}).check_s == 0.25


def test_quality_is_cited_for_what_it_is() -> None:
    for words in ("nearer to pooled", "Measured once, elsewhere", "not how far"):
        assert words in RECENCY
