"""When a session has learnt enough, as arithmetic; and that what is forgotten of its checks decides nothing."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from orchestrator.sessions.stopping import Check, added, enough, gone_back, needed, newly_best, without_progress
from shared.claims.manifest import Validation

LOSSES = st.lists(st.sampled_from([0.5, 1.0, 1.5, 2.0]), min_size=1, max_size=12)


def checks(*losses: float) -> list[Check]:
    return [Check(position, loss) for position, loss in enumerate(losses)]


@pytest.mark.parametrize(
    ("losses", "waited"),
    [((), 0), ((2.0,), 0), ((2.0, 1.0), 0), ((2.0, 1.0, 1.5), 1), ((1.0, 1.0), 1), ((1.0, 2.0, 0.5), 0), ((1.0, 3.0, 2.0), 2)],
)  # fmt: skip
def test_checks_without_progress(losses: tuple[float, ...], waited: int) -> None:
    assert without_progress(checks(*losses)) == waited


def test_enough_says_why() -> None:
    told = enough(checks(2.0, 1.0, 1.5, 1.25), 2)
    assert told == "the held-out loss was least after visit 1 (1.0) and not less in the 2 checks since"
    assert "before the first visit" in enough(checks(1.0, 1.5), 1)
    assert not enough(checks(2.0, 1.0, 1.5), 2)
    assert not enough(checks(1.0, *[2.0] * 50), None)
    assert not enough([], 1)


def test_a_check_that_measured_nothing_is_none() -> None:
    assert added(checks(1.0), 3, None) == checks(1.0)
    assert added(checks(1.0), 3, 0.5) == [*checks(1.0), Check(3, 0.5)]


def test_what_was_restored_away_is_checked_again() -> None:
    assert gone_back(checks(3.0, 2.0, 1.0), 1) == checks(3.0, 2.0)
    assert newly_best(gone_back(checks(3.0, 2.0, 1.0), 1), 1)
    assert not newly_best(checks(3.0, 2.0), 0)
    assert not newly_best(checks(3.0, 4.0), 1)


@given(LOSSES, LOSSES, st.integers(0, 12), st.integers(1, 5), st.data())
def test_what_is_forgotten_decides_nothing(
    first: list[float], later: list[float], oldest: int, patience: int, data: st.DataObject
) -> None:
    """Whatever comes after, a restore to where one may go included, the shortened list says what the whole one says."""
    whole = checks(*first)
    oldest = min(oldest, len(whole) - 1)
    short = needed(whole, oldest)
    back = data.draw(st.integers(oldest, len(whole) - 1))
    for kept in (whole, short):
        assert gone_back(kept, back)
    whole, short = gone_back(whole, back), gone_back(short, back)
    for position, loss in enumerate(later, back + 1):
        whole, short = added(whole, position, loss), added(short, position, loss)
        assert without_progress(whole) == without_progress(short)
        assert enough(whole, patience) == enough(short, patience)
        assert newly_best(whole, position) == newly_best(short, position)


@pytest.mark.parametrize("change", [-1.0, 0.0, 1.0])
def test_what_is_kept_does_not_grow_with_a_session(change: float) -> None:
    kept: list[Check] = []
    for position in range(10_000):
        kept = needed(added(kept, position, 10_000.0 + change * position), position - 5)
    assert len(kept) <= 7
    assert without_progress(kept) == (0 if change < 0 else 9_999)


def test_a_manifest_that_asks_for_none_of_it_keeps_its_bytes() -> None:
    plain = Validation(dataset="ab" * 32, records=4).model_dump(mode="json")
    assert set(plain) == {"dataset", "records", "every_visits", "max_loss_increase"}
    asked = Validation(dataset="ab" * 32, records=4, patience=2, release="best").model_dump(mode="json")
    assert (asked["patience"], asked["release"]) == (2, "best")
