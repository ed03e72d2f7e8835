"""The model that is to be released is kept whatever is damaged and gone back to; where it is not, no other is released in its place."""

from __future__ import annotations

import os
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from orchestrator.gpu_session.checkpoints import Checkpoints
from orchestrator.runner.rounds import Rounds
from orchestrator.sessions.sealed_models import to_release
from orchestrator.sessions.state import SessionState
from shared.claims.manifest import Validation
from shared.crypto.secret import Secret
from shared.errors import VerificationFailed
from tests.orchestrator.orchestrator_samples import manifest
from tests.orchestrator.test_best_fold import restored, sealed
from tests.orchestrator.test_going_back import back_to_the_first, keep, skip
from tests.orchestrator.test_session_fold import running

HELD_OUT = Validation(dataset="ab" * 32, records=4, release="best")


def released() -> SessionState:
    """A session that releases its best model, at its first one."""
    return running(manifest(quorum=2, validation=HELD_OUT))


def taught(state: SessionState, *losses: float) -> None:
    """Visits to the next stops, each with the held-out loss and a model of its own."""
    for loss in losses:
        keep(state, loss=loss, model=f"{state.position + 1:064x}")


def second_best(state: SessionState) -> None:
    """The best but one is sealed, then one that is no better, then the best; its file is damaged, and its stop passed over."""
    taught(state, 2.5, 1.0)
    sealed(state, "k_2")
    taught(state, 2.0)
    sealed(state, "k_3")
    taught(state, 0.5)
    sealed(state, "k_4")
    restored(state, "k_3")
    skip(state)
    taught(state, 2.2)


def test_the_first_model_is_sealed_anew_where_it_was_made_anew() -> None:
    """The session went on with a checkpoint that had been set aside, and failed for it at its very end."""
    state = released()
    sealed(state, "k_0")
    taught(state, 4.0)
    back_to_the_first(state)
    assert (state.checkpoints, state.best_unsealed) == ([], True)
    sealed(state, "k_again")
    assert not state.best_unsealed
    taught(state, 4.0)
    assert [one.name for one in to_release(state)] == ["k_again"]


def test_the_best_before_is_the_best_again_where_its_successor_does_not_come_again(tmp_path: Path) -> None:
    """Its successor's seal had made it forgotten: the last model, which is worse, was released without a word."""
    state = released()
    second_best(state)
    assert state.to_go_back_to is not None
    assert state.to_go_back_to.name == "k_2"
    assert not state.best_unsealed
    sealed(state, "k_5")
    for age, made in enumerate(("k_1", "k_2", "k_3", "k_5")):
        (tmp_path / f"{made}.sealed").write_bytes(b"sealed")
        os.utime(tmp_path / f"{made}.sealed", (1000 + age, 1000 + age))
    Checkpoints(tmp_path, Secret(bytes(32))).prune(state.checkpoints, to_release(state))
    assert {path.stem for path in tmp_path.iterdir()} == {"k_2", "k_3", "k_5"}


def test_of_the_best_before_no_more_is_kept_than_a_restore_can_ask_for() -> None:
    state = released()
    taught(state, 2.0)
    sealed(state, "k_1")
    taught(state, 1.0)
    sealed(state, "k_2")
    assert [one.name for one in to_release(state)] == ["k_1", "k_2"]
    taught(state, 1.5)
    sealed(state, "k_3")
    assert [one.name for one in to_release(state)] == ["k_2"], "no restore goes back behind it any more"


class _Untouched(Checkpoints):
    """No checkpoint is asked for, and no model is read."""

    def __getattribute__(self, name: str) -> Any:
        raise AssertionError(name)


@pytest.mark.parametrize("forgotten", [True, False])
async def test_no_other_model_is_released_in_the_place_of_the_best(forgotten: bool, tmp_path: Path) -> None:
    """As a journal of before may leave it; `forgotten`: no sealed model is known, else that of another stop."""
    state = released()
    second_best(state)
    state.best = None if forgotten else state.checkpoints[-1]
    run = SimpleNamespace(state=state)
    rounds = Rounds(
        *cast(Any, (run, None, None, _Untouched(tmp_path, Secret(bytes(32))), None, None)),
    )
    with pytest.raises(VerificationFailed) as caught:
        await rounds._finish()
    assert (caught.value.code, caught.value.expected) == ("checkpoint-gone", "the model after stop 2")
