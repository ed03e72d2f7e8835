"""What a session is judged by, folded: it goes back with the model, so that what is repeated is judged as it was the first time."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from orchestrator.gpu_session.checkpoints import Checkpoints
from orchestrator.sessions.acceptance import REMEMBERED
from orchestrator.sessions.facts import new_fact
from orchestrator.sessions.sealed_models import to_release
from orchestrator.sessions.state import SessionState
from orchestrator.sessions.stopping import Check
from orchestrator.sessions.views import summary
from shared.claims.manifest import Validation
from shared.claims.privacy import Privacy
from shared.crypto.secret import Secret
from shared.protocol.session import SessionFact
from shared.protocol.training import TrainingFact
from shared.protocol.visit import VisitFact
from tests.orchestrator.orchestrator_samples import MODEL, manifest, planned
from tests.orchestrator.test_best_fold import leaf, restored, sealed
from tests.orchestrator.test_session_fold import apply, running

HELD_OUT = Validation(dataset="ab" * 32, records=4, every_visits=3, release="best")
ARRIVING = (VisitFact.GRANTED, VisitFact.OFFERED, VisitFact.REPORTED, VisitFact.FENCED, VisitFact.VERIFIED)


def arrive(state: SessionState) -> str:
    """The next stop's visit, up to its training; its id."""
    visit = f"v_{state.visits_planned + 1}"
    apply(state, planned(state, visit))
    for fact in ARRIVING:
        apply(state, new_fact(fact, visit=visit, log_size=state.tree.size))
    return visit


def keep(
    state: SessionState, *, size: float | None = None, loss: float | None = None, model: str = MODEL["model"]
) -> None:
    """A visit to the next stop that is closed: with an update of this size, and this held-out loss, if it was checked."""
    visit = arrive(state)
    apply(state, new_fact(TrainingFact.TRAINED, visit=visit, update_size=size))
    apply(state, new_fact(TrainingFact.VALIDATED, visit=visit, validation_before=3.0, validation_after=loss))
    apply(state, new_fact(TrainingFact.SCRUBBED, visit=visit))
    apply(
        state,
        new_fact(
            TrainingFact.CLOSED, visit=visit, leaf=leaf(state), model={**MODEL, "model": model, "step": state.position}
        ),
    )


def skip(state: SessionState) -> None:
    """The next stop is passed over: its holder does not come."""
    visit = f"v_{state.visits_planned + 1}"
    apply(state, planned(state, visit))
    body = {"reason": "x", "blame": True, "again": False, "quarantine": False}
    apply(state, new_fact(VisitFact.RECALLED, visit=visit, leaf=leaf(state), **body))


def reject(state: SessionState, *, quarantine: bool = False, loss: float | None = None) -> None:
    """A visit to the next stop that is rejected; `loss`: by the held-out check."""
    visit = arrive(state)
    apply(state, new_fact(TrainingFact.TRAINED, visit=visit))
    body: dict[str, Any] = {"reason": "x", "validation_before": 3.0, "validation_after": loss, "quarantine": quarantine}
    apply(state, new_fact(TrainingFact.REJECTED, visit=visit, leaf=leaf(state), **body))


def back_to_the_first(state: SessionState) -> None:
    body = {"checkpoint": None, "position": 0, "model": MODEL, "boot_counter": 6}
    apply(state, new_fact(SessionFact.RESTORED, **body, leaf=leaf(state)))


def due(state: SessionState) -> bool:
    """Whether the model is checked after the next stop's visit."""
    stop = state.next_stop()
    assert stop is not None
    return state.check_due(stop.index)


def test_a_check_is_due_with_every_so_many_stops() -> None:
    state, found = running(manifest(validation=HELD_OUT)), []
    while state.next_stop() is not None:
        found.append(due(state))
        keep(state, loss=2.0 if found[-1] else None)
    assert [index for index, was in enumerate(found, 1) if was] == [3, 6, 9]


@pytest.mark.parametrize("loss", [4.0, None])
def test_a_rejection_is_a_check_only_if_something_was_measured(loss: float | None) -> None:
    state = running(manifest(validation=HELD_OUT))
    keep(state)
    keep(state)
    reject(state, loss=loss)
    assert due(state) is (loss is None)
    assert state.unchecked, "what was kept is as it was"


def test_a_check_goes_back_with_the_model() -> None:
    state = running(manifest(validation=HELD_OUT))
    keep(state)
    keep(state)
    sealed(state, "k_2")
    keep(state, loss=2.0)
    assert (state.checked_at, state.unchecked) == (3, False)
    restored(state, "k_2")
    assert (state.checked_at, state.unchecked, due(state)) == (0, True, True)
    back_to_the_first(state)
    assert (state.checked_at, state.unchecked, due(state)) == (0, False, False)


def test_the_last_check_is_of_the_model_as_it_stands_and_counts_once() -> None:
    """Also where the GPU was reset behind it, and it is made again."""
    state = running(manifest(validation=HELD_OUT))
    keep(state)
    sealed(state, "k_1")
    for _ in range(2):
        body = {"position": 1, "model": MODEL["model"], "validation_before": 3.0, "validation_after": 2.0}
        apply(state, new_fact(SessionFact.LAST_CHECKED, **body, leaf=leaf(state)))
        assert state.committed is not None
        assert (state.committed.validation, state.unchecked) == (2.0, False)
        assert state.checks == [Check(0, 3.0), Check(1, 2.0)]
        assert state.best_unsealed or (state.best is not None and state.best.name == "k_1")
        restored(state, "k_1")
        assert state.unchecked


def test_sizes_of_updates_go_back_as_they_were_though_many_came_since() -> None:
    """A poisoned visit would be compared with nothing, and accepted on its repeat."""
    state = running(manifest(rounds=40))
    for number in range(1, 16):
        keep(state, size=float(number))
    sealed(state, "k_15")
    before = dict(state.updates)
    for _ in range(REMEMBERED + 5):
        keep(state, size=1.0)
    assert not before.keys() & state.updates.keys(), "none of the old ones is among the newest"
    restored(state, "k_15")
    assert state.updates == before
    keep(state, size=1.0)
    restored(state, "k_15")
    assert state.updates == before, "what is kept for a checkpoint does not move with the session"
    back_to_the_first(state)
    assert state.updates == {}


def test_no_more_is_kept_than_checkpoints_can_ask_for() -> None:
    state = running(manifest(rounds=4))
    for number in range(1, 6):
        keep(state, size=1.0)
        sealed(state, f"k_{number}")
    assert set(state.behind) == {"k_4", "k_5"}


def test_rejections_behind_the_checkpoint_are_taken_back_and_those_before_it_stay() -> None:
    """Else a holder's earlier visits, which were accepted, are passed over on the way back."""
    state = running(manifest(rounds=4, quorum=1))
    keep(state)
    reject(state, quarantine=True)
    sealed(state, "k_2")
    keep(state)
    reject(state, quarantine=True)
    assert (state.active, state.rejected) == (("h2",), {"h0": 1, "h1": 1})
    restored(state, "k_2")
    assert (state.active, state.rejected, state.quarantined) == (("h0", "h2"), {"h1": 1}, ["h1"])
    assert state.records_done == {"h0": 8}
    assert (state.position, state.unlike) == (2, [])
    back_to_the_first(state)
    assert (state.active, state.rejected, state.records_done) == (("h0", "h1", "h2"), {}, {})


def test_who_broke_the_gpus_integrity_stays_away() -> None:
    state = running(manifest(rounds=4, quorum=1))
    keep(state)
    sealed(state, "k_1")
    apply(state, planned(state, "v_broken"))
    for fact in ARRIVING[:-1]:
        apply(state, new_fact(fact, visit="v_broken", log_size=state.tree.size))
    body = {"reason": "x", "blame": True, "again": False, "quarantine": True}
    apply(state, new_fact(VisitFact.QUARANTINED, visit="v_broken", leaf=leaf(state), **body))
    restored(state, "k_1")
    assert state.quarantined == ["h1"]


def test_what_was_trained_before_a_damaged_checkpoint_is_not_trained_on_again(tmp_path: Path) -> None:
    """k_5 was set aside, and a stop passed over on the way back: its followers would train from another model, with other noise. They were
    let do so after the next checkpoint, and one more damaged file was the end of the session, for k_1 had been removed."""
    state = running(manifest(quorum=2, privacy=Privacy(max_grad_norm=1.0, noise_multiplier=1.0, delta=1e-5)))
    for stop in range(1, 7):
        keep(state, model=f"{stop:064x}")
        if stop in (1, 5):
            sealed(state, f"k_{stop}")
    restored(state, "k_1")
    skip(state)
    assert [stop for stop in range(3, 9) if state.spent_in_vain(stop)] == [3, 4, 5, 6]
    sealed(state, "k_2")
    assert [stop for stop in range(3, 9) if state.spent_in_vain(stop)] == [3, 4, 5, 6]
    assert [made.name for made in state.checkpoints] == ["k_1", "k_2"]
    for age, name in enumerate(("k_0.sealed", "k_1.sealed", "k_5.damaged", "k_2.sealed")):
        (tmp_path / name).write_bytes(b"sealed")
        os.utime(tmp_path / name, (1000 + age, 1000 + age))
    Checkpoints(tmp_path, Secret(bytes(32))).prune(state.checkpoints, to_release(state))
    assert {path.name for path in tmp_path.iterdir()} == {"k_1.sealed", "k_2.sealed", "k_5.damaged"}


def test_the_last_whole_checkpoint_is_kept_though_the_one_after_it_is_gone(tmp_path: Path) -> None:
    """k_5 was taken away, or set aside by a life that died there: the next one sealed pushed k_1 out, whose file was removed."""
    state, kept = running(manifest(quorum=2)), Checkpoints(tmp_path, Secret(bytes(32)))
    for stop in range(1, 7):
        keep(state)
        if stop == 6:
            gone = [made.name for made in kept.gone(state.checkpoints)]
            apply(state, new_fact(SessionFact.CHECKPOINTS_GONE, checkpoints=gone))
        if stop in (1, 5, 6):
            sealed(state, f"k_{stop}")
            (tmp_path / f"k_{stop}.sealed").write_bytes(b"sealed")
            os.utime(tmp_path / f"k_{stop}.sealed", (1000 + stop, 1000 + stop))
        if stop == 5:
            kept.set_aside("k_5")
    kept.prune(state.checkpoints, to_release(state))
    assert [made.name for made in state.checkpoints] == ["k_1", "k_6"]
    assert {path.name for path in tmp_path.iterdir()} == {"k_1.sealed", "k_5.damaged", "k_6.sealed"}
    restored(state, "k_1")
    assert state.position == 1


def test_a_check_behind_a_checkpoint_that_counts_is_kept_though_a_later_one_was_sealed_and_lost() -> None:
    """Else going back to k_1 once more would know of a least loss that its model has not seen."""
    state = running(manifest(validation=Validation(dataset="ab" * 32, records=4, patience=9)))
    for name, losses in (("k_1", (2.0,)), ("k_4", (1.9, 1.8, 0.5)), ("k_2", (1.7,))):
        for loss in losses:
            keep(state, loss=loss)
        sealed(state, name)
        if name == "k_4":
            restored(state, "k_1")
    restored(state, "k_1")
    assert state.checks == [Check(1, 2.0, followed=0)]
    back_to_the_first(state)
    assert state.checkpoints == []


@pytest.mark.parametrize("losses", [(4.0, 5.0, 6.0), (2.0, 1.0, 1.5)], ids=["no better", "better"])
def test_the_first_model_has_its_own_check_behind_it_and_no_other(losses: tuple[float, ...]) -> None:
    """However many checks were told by their number alone by then: they counted as waited for, or the first was forgotten with them."""
    state = running(manifest(validation=Validation(dataset="ab" * 32, records=4, patience=9)))
    for name in ("k_3", "k_6"):
        for loss in losses:
            keep(state, loss=loss)
        sealed(state, name)
    assert state.checks[0] != Check(0, 3.0)
    back_to_the_first(state)
    assert (state.checks, state.unchecked, state.best) == ([Check(0, 3.0)], False, None)


def test_a_journal_of_before_goes_on_that_went_back_to_a_checkpoint_which_was_found_again() -> None:
    """Its folder was away for a while; until now the next wiped GPU was filled from it, though another had been sealed since."""
    state = running(manifest(quorum=2))
    keep(state, size=1.0)
    keep(state, size=2.0)
    sealed(state, "k_2")
    found, before = state.checkpoints[-1], dict(state.updates)
    back_to_the_first(state)
    keep(state, size=3.0)
    sealed(state, "k_1")
    body = {"checkpoint": "k_2", "position": 2, "model": vars(found.state), "boot_counter": 7}
    apply(state, new_fact(SessionFact.RESTORED, **body, leaf=leaf(state)))
    assert (state.position, state.updates, state.committed) == (2, before, found.state)
    keep(state, size=4.0)
    sealed(state, "k_3")
    assert [made.name for made in state.checkpoints] == ["k_1", "k_3"]


def test_what_a_restore_took_back_is_not_told_of_all_visits() -> None:
    """It read "85 of 75 visits": what is made again has a receipt of its own, and the model is no further by it."""
    state = running(manifest(rounds=4, quorum=1))
    keep(state)
    sealed(state, "k_1")
    keep(state)
    keep(state)
    restored(state, "k_1")
    view = summary(state)
    assert (view["position"], view["visits_closed"]) == (1, 3)
