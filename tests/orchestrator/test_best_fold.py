"""Which sealed model is the best one, folded from the journal: also where one stop's checkpoints hold different models of a round."""

from __future__ import annotations

from typing import Any

import pytest

from orchestrator.sessions.facts import new_fact
from orchestrator.sessions.state import SessionState
from orchestrator.sessions.stopping import Check
from shared.claims.manifest import Validation
from shared.protocol.session import SessionFact
from tests.orchestrator.orchestrator_samples import manifest, planned
from tests.orchestrator.test_session_fold import apply, close, running

HELD_OUT = Validation(dataset="ab" * 32, records=4, release="best")
BEFORE, AFTER = "k_before", "k_after"
STEPPED = {"model": "8" * 64, "optimiser": "9" * 64, "step": 2, "validation": 1.0}


def leaf(state: SessionState) -> dict[str, Any]:
    return {"index": state.tree.size, "hash": "7" * 64}


def sealed(state: SessionState, name: str) -> None:
    assert state.committed is not None
    model = vars(state.committed)
    apply(
        state, new_fact(SessionFact.CHECKPOINTED, name=name, position=state.position, total=1, model=model, seconds=0.1)
    )


def restored(state: SessionState, name: str) -> None:
    made = next(made for made in state.checkpoints if made.name == name)
    body = {"checkpoint": name, "position": made.position, "model": vars(made.state), "boot_counter": 6}
    apply(state, new_fact(SessionFact.RESTORED, **body, leaf=leaf(state)))


def after_a_round() -> SessionState:
    """A round whose gradients add up: sealed before its step, and after it."""
    state = running(manifest(holders=1, accumulate="tour", validation=HELD_OUT))
    apply(state, planned(state))
    close(state, "v_1", 2)
    assert state.committed is not None
    state.committed = type(state.committed)(**{**vars(state.committed), "batches": 2})
    sealed(state, BEFORE)
    judged = {"round": 1, "work": "w", "stepped": True, "reason": "", "validation_before": 3.0, "validation_after": 1.0}
    apply(state, new_fact(SessionFact.TOUR_JUDGED, **judged))
    apply(state, new_fact(SessionFact.TOUR_ENDED, round=1, model=STEPPED, leaf=leaf(state)))
    return state


def test_the_model_after_the_step_is_the_best_also_once_it_was_restored() -> None:
    state = after_a_round()
    assert state.best_unsealed
    sealed(state, AFTER)
    for _ in range(2):
        assert not state.best_unsealed
        assert state.best is not None
        assert state.best.name == AFTER
        assert state.checks == [Check(0, 3.0), Check(1, 1.0)]
        restored(state, AFTER)


@pytest.mark.parametrize("step_was_sealed", [True, False])
def test_of_a_round_that_was_restored_before_its_step_no_check_is_left(step_was_sealed: bool) -> None:
    state = after_a_round()
    if step_was_sealed:  # and its file is gone
        sealed(state, AFTER)
    restored(state, BEFORE)
    assert (state.best, state.checks) == (None, [Check(0, 3.0)])
    assert not state.best_unsealed
    apply(
        state,
        new_fact(
            SessionFact.TOUR_JUDGED,
            round=1,
            work="w",
            stepped=True,
            reason="",
            validation_before=3.0,
            validation_after=1.0,
        ),
    )
    apply(state, new_fact(SessionFact.TOUR_ENDED, round=1, model=STEPPED, leaf=leaf(state)))
    assert state.best_unsealed


def test_what_was_chosen_is_chosen_anew_behind_a_stop_that_a_late_approval_brought() -> None:
    """Else the log would name the model that was the best before that stop, and another would be released."""
    state = after_a_round()
    sealed(state, AFTER)
    choice = {"checkpoint": AFTER, "position": 1, "model": STEPPED["model"]}
    apply(state, new_fact(SessionFact.BEST_CHOSEN, **choice, leaf=leaf(state)))
    apply(state, new_fact(SessionFact.BEST_RESTORED, checkpoint=AFTER))
    assert state.chosen
    apply(state, planned(state, "v_2"))
    assert not state.chosen
