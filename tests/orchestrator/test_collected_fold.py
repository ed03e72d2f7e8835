"""A round of a collected tour in the journal, folded: its visits wait together, move together, and end together or come again."""

from __future__ import annotations

from typing import Any

import pytest

from orchestrator.sessions.approvals import agreed
from orchestrator.sessions.facts import new_fact
from orchestrator.sessions.state import SessionState
from shared.errors import ProtocolViolation
from shared.names import Role, TrainingPhase
from shared.protocol.session import SessionFact
from shared.protocol.training import TrainingFact
from shared.protocol.visit import VisitFact
from tests.orchestrator.orchestrator_samples import MODEL, manifest, planned
from tests.orchestrator.test_session_fold import apply, running

ARRIVING = (VisitFact.GRANTED, VisitFact.OFFERED, VisitFact.REPORTED, VisitFact.FENCED, VisitFact.VERIFIED)


def gather(state: SessionState, visit: str) -> None:
    apply(state, planned(state, visit))
    for fact in ARRIVING:
        apply(state, new_fact(fact, visit=visit, log_size=state.tree.size))


def end(state: SessionState, fact: TrainingFact, visit: str, **body: Any) -> None:
    leaf = {"index": state.tree.size, "hash": "5" * 64}
    apply(state, new_fact(fact, visit=visit, leaf=leaf, **body))


@pytest.fixture
def waiting() -> SessionState:
    """All three holders' visits of round 1 wait."""
    state = running(manifest(collect="tour"))
    for visit in ("v_1", "v_2", "v_3"):
        assert state.collected is None
        gather(state, visit)
    return state


def test_a_round_is_trained_on_when_it_is_whole(waiting: SessionState) -> None:
    assert (waiting.collected, waiting.current, waiting.position) == (1, None, 3)
    assert [visit.training for visit in waiting.open_visits] == [TrainingPhase.LOADED] * 3


def test_its_visits_move_together_and_the_last_one_closed_ends_the_round(waiting: SessionState) -> None:
    for fact in (TrainingFact.TRAINED, TrainingFact.VALIDATED, TrainingFact.SCRUBBED):
        apply(waiting, new_fact(fact, visits=["v_1", "v_2", "v_3"], update_size=2.0))
    for number in (1, 2, 3):
        assert waiting.updates == {}, "one update, which counts once"
        end(waiting, TrainingFact.CLOSED, f"v_{number}", model={**MODEL, "step": 6})
    assert (waiting.gathered, waiting.position, waiting.visits_closed, waiting.updates) == ([], 3, 3, {3: 2.0})
    assert waiting.committed is not None
    assert waiting.committed.step == 6
    assert waiting.records_done == {"h0": 8, "h1": 8, "h2": 8}


def test_what_one_may_not_state_none_does(waiting: SessionState) -> None:
    with pytest.raises(ProtocolViolation):
        apply(waiting, new_fact(TrainingFact.VALIDATED, visits=["v_1", "v_2", "v_3"]))
    assert {visit.training for visit in waiting.gathered} == {TrainingPhase.LOADED}


def test_a_rejected_tour_blames_one_or_nobody(waiting: SessionState) -> None:
    for number in (1, 2, 3):
        end(waiting, TrainingFact.REJECTED, f"v_{number}", reason="r", blame=number == 2, quarantine=number == 2)
    assert (waiting.rejected, waiting.quarantined, waiting.position) == ({"h1": 1}, ["h1"], 3)
    stop = waiting.next_stop()
    assert stop is not None
    assert (stop.round, stop.holder) == (2, "h0")


def test_who_is_let_go_for_good_is_passed_over_and_who_comes_again_is_next(waiting: SessionState) -> None:
    end(waiting, TrainingFact.RECALLED, "v_1", reason="veto", again=False)
    apply(waiting, new_fact(SessionFact.VETOED, Role.HOLDER, holder="h0", document="", signature=""))
    assert (waiting.collected, [visit.id for visit in waiting.gathered]) == (1, ["v_2", "v_3"])
    end(waiting, TrainingFact.RECALLED, "v_2", reason="restart", again=True)
    assert waiting.collected is None
    stop = waiting.next_stop()
    assert stop is not None
    assert (stop.index, stop.holder) == (2, "h1")
    gather(waiting, "v_4")
    assert (waiting.collected, [visit.id for visit in waiting.gathered]) == (1, ["v_4", "v_3"])


def test_who_joins_after_a_round_is_visited_in_the_next(waiting: SessionState) -> None:
    """Else a second tour of the same round would train on its records by themselves."""
    state = running(manifest(collect="tour", quorum=2), without=(2,))
    assert agreed(state)
    for visit in ("v_1", "v_2"):
        gather(state, visit)
    assert state.collected == 1
    for fact in (TrainingFact.TRAINED, TrainingFact.VALIDATED, TrainingFact.SCRUBBED):
        apply(state, new_fact(fact, visits=["v_1", "v_2"]))
    for visit in ("v_1", "v_2"):
        end(state, TrainingFact.CLOSED, visit, model={**MODEL, "step": 4})
    state.decisions["h2"] = "approve"
    stop = state.next_stop()
    assert stop is not None
    assert (stop.round, stop.holder) == (2, "h0")
