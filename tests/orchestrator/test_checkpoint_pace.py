"""Sealed checkpoints take no more than their share of the training, whatever both cost, and no reset loses more than was agreed."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from orchestrator.runner.pace import SEALED_AT_LEAST_S, CheckpointPace, expected_cost

INTERVAL_S, SHARE = 5.0, 0.01


@given(
    st.lists(st.tuples(st.floats(0.001, 30.0), st.floats(0.0, 2.0), st.floats(0.0001, 20.0)), max_size=200),
    st.floats(0.0, 20.0),
)
def test_the_share_is_kept_whatever_comes(visits: list[tuple[float, float, float]], expected: float) -> None:
    """Each visit trains, spends some time otherwise, and would have a checkpoint of its own cost behind it."""
    pace, now, trained, costs, since = CheckpointPace(INTERVAL_S, SHARE, 0.0, expected), 0.0, 0.0, [], 0.0
    for train, other, cost in visits:
        now, since = now + train + other, since + train + other
        trained += train
        pace.trained(train)
        if pace.due(now):
            assert since >= INTERVAL_S * 0.999
            costs.append(cost)
            now, since = now + cost, 0.0
            pace.made(now, cost)
        else:
            # What a reset loses: not yet the interval, or less training than pays for the last checkpoint, or for the first.
            assert since < INTERVAL_S * 1.001 or (costs[-1] if costs else expected) > 0.0
        # Each is paid for before it is made, at the price of the one before it: the first at the expected price, the last not yet.
        assert sum([expected, *costs][:-1] if costs else []) <= SHARE * trained * 1.001


def test_the_first_comes_after_the_interval_and_the_next_when_it_is_paid_for() -> None:
    pace = CheckpointPace(INTERVAL_S, SHARE, 100.0, 0.04)
    pace.trained(4.9)
    assert not pace.due(104.9)
    pace.trained(0.1)
    assert pace.due(105.0)
    pace.made(105.5, 0.5)
    pace.trained(49.0)
    assert not pace.due(170.0)  # the interval is long over
    pace.trained(1.0)
    assert pace.due(171.0)


def test_a_checkpoint_that_was_not_needed_costs_nothing_and_starts_the_interval() -> None:
    pace = CheckpointPace(INTERVAL_S, SHARE, 0.0, 0.0)
    pace.not_needed(7.0)
    pace.trained(60.0)
    assert not pace.due(11.9)
    assert pace.due(12.0)


def test_the_first_of_a_life_is_judged_by_the_last_before_it_or_by_its_size() -> None:
    assert expected_cost(0.5, 10**12) == 0.5
    assert expected_cost(None, 0) == SEALED_AT_LEAST_S
    pace = CheckpointPace(INTERVAL_S, SHARE, 0.0, expected_cost(None, 35_000_000))
    pace.trained(101.9)
    assert not pace.due(1000.0)
    pace.trained(0.1)
    assert pace.due(1000.0)
