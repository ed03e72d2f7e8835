"""Whether what the GPU reads back is the state that the journal names: by digests where both have them, else by the GPU's own number."""

from __future__ import annotations

from dataclasses import replace

import pytest

from orchestrator.gpu_session.placement import model_state
from orchestrator.sessions.facts import new_fact
from orchestrator.sessions.remembered import ModelState
from shared.claims.layout import require_named
from shared.errors import VerificationFailed
from shared.protocol.session import SessionFact
from shared.wire.gpu_answers import Committed
from tests.orchestrator.orchestrator_samples import manifest, planned
from tests.orchestrator.test_session_fold import apply, close, running

MODEL, OTHER = "1" * 64, "2" * 64
NAMED = ModelState(MODEL, "3" * 64, 4, version=7)
UNNAMED = replace(NAMED, optimiser=None)
JOURNAL_OF_AN_EARLIER_RELEASE = ModelState(MODEL, "3" * 64, 4)


@pytest.mark.parametrize(
    ("known", "found", "same"),
    [
        (NAMED, NAMED, True),
        (NAMED, UNNAMED, True),
        (UNNAMED, NAMED, True),
        (UNNAMED, UNNAMED, True),
        (NAMED, replace(NAMED, version=0), True),  # memory that is read back by digest, or a checkpoint's state
        (JOURNAL_OF_AN_EARLIER_RELEASE, NAMED, True),
        (NAMED, replace(NAMED, model=OTHER), False),
        (UNNAMED, replace(UNNAMED, model=OTHER), False),
        (NAMED, replace(NAMED, optimiser=OTHER), False),
        (UNNAMED, replace(UNNAMED, version=6), False),  # an older commit
        (UNNAMED, replace(NAMED, version=0), False),  # as a GPU tells of bytes that nobody committed
        (NAMED, replace(UNNAMED, version=0), False),
        (JOURNAL_OF_AN_EARLIER_RELEASE, UNNAMED, False),  # nothing tells: not taken for the same
        (replace(UNNAMED, version=0), replace(UNNAMED, version=0), False),
    ],
)
def test_a_state_is_the_same_only_where_something_says_so(known: ModelState, found: ModelState, same: bool) -> None:
    assert known.reads_as(found) is same


def test_the_gpus_answer_keeps_its_number_and_a_number_alone_makes_no_other_state() -> None:
    answer = Committed(model=MODEL, step=4, version=7)
    assert model_state(answer, 0.5) == ModelState(MODEL, None, 4, 0.5, 0, 7)
    assert model_state(answer).version == 7
    assert replace(NAMED, version=1) == NAMED


def test_a_checkpoint_names_the_committed_state_until_another_is_committed() -> None:
    state = running(manifest())
    apply(state, planned(state))
    close(state, "v_1", 2)
    assert state.committed is not None
    state.committed = replace(state.committed, optimiser=None, version=3)
    model = {**vars(state.committed), "optimiser": OTHER, "version": 0}
    apply(state, new_fact(SessionFact.CHECKPOINTED, name="k", position=1, total=1, model=model, seconds=0.1))
    assert (state.committed.optimiser, state.committed.version) == (OTHER, 3)
    assert state.checkpoints[-1].state.weights == state.committed.weights


def test_nothing_is_claimed_of_a_state_that_has_no_digest() -> None:
    assert require_named(OTHER) == OTHER
    with pytest.raises(VerificationFailed, match="did not tell"):
        require_named(None)
