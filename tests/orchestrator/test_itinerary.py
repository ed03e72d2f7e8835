"""The itinerary's laws, for any manifest."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from orchestrator.itinerary import Itinerary
from shared.claims.manifest import Manifest, RosterEntry
from shared.claims.training import TrainingOptions
from shared.protocol.stops import travel_order
from tests.orchestrator.orchestrator_samples import EMULATED, key, manifest


@st.composite
def manifests(draw: st.DrawFn) -> Manifest:
    steps = draw(st.lists(st.one_of(st.none(), st.integers(1, 5)), min_size=1, max_size=5))
    roster = tuple(
        RosterEntry(holder=f"h{i}", key=key(i + 1).fingerprint, steps_per_visit=s, evidence=EMULATED)
        for i, s in enumerate(steps)
    )
    return manifest(
        roster=roster,
        rounds=draw(st.integers(1, 6)),
        visit_order=draw(st.sampled_from(["roster", "shuffled"])),
        training=TrainingOptions(batch_size=draw(st.integers(1, 4)), seed=draw(st.integers(0, 2**53 - 1))),
    )


@given(manifests())
def test_each_holder_reads_its_records_in_order_without_gap_or_overlap(agreed: Manifest) -> None:
    cursors = dict.fromkeys((e.holder for e in agreed.roster), 0)
    step = 0
    for index, visit in enumerate(Itinerary(agreed), start=1):
        assert visit.index == index
        assert visit.cursor.start == cursors[visit.holder]
        assert visit.cursor.count == visit.steps * agreed.training.batch_size
        assert visit.first_step == step
        cursors[visit.holder] += visit.cursor.count
        step += visit.steps
    assert step == Itinerary(agreed).total_steps


@given(manifests())
def test_every_round_visits_everybody_once(agreed: Manifest) -> None:
    itinerary, names = Itinerary(agreed), sorted(e.holder for e in agreed.roster)
    for number in range(1, agreed.rounds + 1):
        assert sorted(v.holder for v in itinerary if v.round == number) == names


def test_a_shuffled_order_differs_between_rounds_and_seeds_but_not_between_runs() -> None:
    def orders(seed: int) -> list[tuple[str, ...]]:
        options = TrainingOptions(batch_size=1, seed=seed)
        agreed = manifest(6, visit_order="shuffled", training=options, rounds=8)
        return [travel_order(agreed, number) for number in range(1, 9)]

    assert len(set(orders(1))) > 1
    assert orders(1) != orders(2)
    assert orders(1) == orders(1)


@pytest.mark.parametrize("index", [0, -1, 10])
def test_there_is_no_visit_outside_the_plan(index: int) -> None:
    with pytest.raises(IndexError):
        Itinerary(manifest()).visit(index)
