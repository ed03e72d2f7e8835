"""Plans of tours: costs told exactly from sessions whose every second is known, and predictions that last as long as those sessions did."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gput.planning import Costs, Work, predict, reason
from gput.planning_tours import assumed, calibrate_tours, quality
from gput.tours import Tours
from orchestrator.api.examples import VISIT
from shared.errors import BadRequest
from tests.gput.test_planning import COSTS, costs, seconds

PLAN_S = 0.001


class Played:
    """A session of whole rounds on a clock of its own: its views, and how long it took."""

    def __init__(self, truth: Costs, work: Work, length: int, session: str = "s_1") -> None:
        self.views: list[dict[str, Any]] = []
        self.work, self.now = work, 0.0
        visit_s, tour_s = truth.fixed(work.tours)
        for number in range(work.steps // (length * work.holders)):
            tour = [self._visit(truth, session, number + 1, length) for _ in range(work.holders)]
            if work.tours is Tours.COLLECT:
                self.now += tour_s + length * work.holders * truth.step_s
                for view in tour:
                    view["closed_at"] = self.now
            elif work.tours is Tours.ACCUMULATE:
                self.now += tour_s
        assert visit_s >= 0

    def _visit(self, truth: Costs, session: str, number: int, length: int) -> dict[str, Any]:
        planned, carried = self.now + PLAN_S, length * self.work.step_bytes
        data = carried * truth.byte_s
        took = {"plan": PLAN_S, "grant": truth.control_s, "provision": truth.data_fixed_s + data}
        if self.work.tours is not Tours.COLLECT:
            took["train"] = truth.train_fixed_s + length * truth.step_s
        self.now += sum(took.values())
        view = {
            **VISIT, "session": session, "round": number, "steps": length, "length": carried, "planned_at": planned,
            "closed_at": self.now, "durations": took, "timers": {"buffer_read": data, "gpu_write": 0.0}, "validation_after": None,
        }  # fmt: skip
        self.views.append(view)
        return view


def works(tours: Tours) -> st.SearchStrategy[Work]:
    return st.builds(
        Work, steps=st.just(0), holders=st.integers(2, 6), records_per_step=st.integers(1, 64), record_bytes=st.integers(1, 1000),
        tours=st.just(tours),
    )  # fmt: skip


def sized(work: Work, length: int, rounds: int) -> Work:
    return Work(
        length * work.holders * rounds, work.holders, work.records_per_step, work.record_bytes, tours=work.tours
    )


@given(costs, seconds, works(Tours.COLLECT), st.lists(st.integers(1, 32), min_size=2, max_size=4, unique=True))
def test_collected_tours_of_different_lengths_tell_everything(
    truth: Costs, tour_s: float, work: Work, of: list[int]
) -> None:
    truth = Costs(truth.control_s, truth.data_fixed_s, truth.byte_s, 0.0, truth.step_s, tour_s=tour_s)
    views = [
        view for n, length in enumerate(of) for view in Played(truth, sized(work, length, 4), length, f"s_{n}").views
    ]
    found = calibrate_tours(views, Tours.COLLECT)
    near = 1e-6 * (1 + truth.control_s + truth.data_fixed_s + tour_s + 200 * truth.step_s)
    assert found.step_s == pytest.approx(truth.step_s, abs=near)
    assert found.tour_s == pytest.approx(tour_s, abs=100 * near)
    assert found.control_s == pytest.approx(truth.control_s + PLAN_S, abs=near)
    assert found.fixed(Tours.COLLECT)[0] == pytest.approx(found.control_s + found.data_fixed_s)
    assert found.train_fixed_s == 0


@pytest.mark.parametrize("tours", Tours)
@given(costs, seconds, st.data(), st.integers(1, 32), st.integers(3, 6))
def test_a_session_again_is_predicted_to_last_as_long_as_it_did(
    tours: Tours, truth: Costs, tour_s: float, data: st.DataObject, length: int, rounds: int
) -> None:
    truth = Costs(truth.control_s, truth.data_fixed_s, truth.byte_s, truth.train_fixed_s, truth.step_s, tour_s=tour_s)
    work = sized(data.draw(works(tours)), length, rounds)
    played = Played(truth, work, length)
    found = calibrate_tours(played.views, tours, truth.step_s)
    near = 1e-6 * (1 + played.now)
    assert found.tour_s is not None
    # The pause before a visit counts as what it takes; between two rounds it is the tour's end's, whose own share it is not.
    assert predict(found, work, length).wall_s == pytest.approx(played.now, abs=near + rounds * PLAN_S)
    assert predict(truth, work, length).rounds == rounds
    assert assumed(found, work, length)[0] == "a tour's end was measured, with its held-out check where one was due"


def test_a_tour_by_hand() -> None:
    of = Costs(control_s=1.0, data_fixed_s=0.5, byte_s=0.001, train_fixed_s=0.5, step_s=0.9, check_s=4.0, tour_s=3.0)
    collected = Work(100, 2, 10, 10, every_visits=1, tours=Tours.COLLECT)
    found = predict(of, collected, 10)
    # A round: 2 × 1.5 s for visits, 3 s for its end, one check of 4 s, 20 × (0.9 + 0.1) s: 30 s, of which 18 train.
    assert found.overhead == pytest.approx(12 / 30)
    assert (found.visits, found.rounds) == (10, 5)
    assert found.wall_s == pytest.approx(5 * 30)
    # Accumulated, each visit starts a training, too.
    assert predict(of, Work(100, 2, 10, 10, 1, Tours.ACCUMULATE), 10).wall_s == pytest.approx(5 * 31)
    # A check every third round of two.
    assert predict(of, Work(100, 2, 10, 10, 6, Tours.COLLECT), 10).wall_s == pytest.approx(5 * 26 + 2 * 4)


def test_what_was_not_measured_is_assumed_and_said() -> None:
    of = Costs(control_s=1.0, data_fixed_s=0.5, byte_s=0.0, train_fixed_s=0.25, step_s=0.9)
    assert of.fixed(None) == (1.75, 0.0)
    assert of.fixed(Tours.COLLECT) == (1.5, 0.25)
    assert of.fixed(Tours.ACCUMULATE) == (1.75, 1.25)
    collected, added = (Work(100, 3, 10, 10, tours=tours) for tours in Tours)
    first, buffers = assumed(of, collected, 7)
    assert first.startswith("no tour was measured")
    assert "at 7 steps a visit 3 of 700 bytes" in buffers
    assert "3 of 3400 bytes" in assumed(of, collected, None)[1]
    assert "batch" in assumed(of, added, 7)[0]
    assert "a tour's end 250 ms besides its steps" in reason(of, collected, 0.5, 2)
    assert "tour" not in reason(of, Work(100, 3, 10, 10), 0.5, 2)
    assert "fewer, larger steps" in quality(added)
    assert "Measured once, elsewhere" in quality(Work(100, 3, 10, 10))


def test_one_round_tells_nothing_of_an_accumulated_tours_end() -> None:
    work = Work(18, 6, 1, 1, tours=Tours.ACCUMULATE)
    found = calibrate_tours(Played(COSTS, work, 3).views, Tours.ACCUMULATE, COSTS.step_s)
    assert found.tour_s is None
    with pytest.raises(BadRequest, match="cannot be told apart"):
        calibrate_tours(Played(COSTS, work, 3).views, Tours.ACCUMULATE)
    with pytest.raises(BadRequest, match="so few visits"):
        calibrate_tours([], Tours.COLLECT)
