"""A session is its journal, folded; what storage says is verified again; a failed commit closes the book."""

from __future__ import annotations

from typing import Any

import pytest

from orchestrator.sessions.approvals import agreed, judge
from orchestrator.sessions.facts import claim, failed, new_fact
from orchestrator.sessions.state import SessionState
from orchestrator.sessions.views import summary
from shared.attestation.approvals import verify_approval
from shared.claims.manifest import Manifest
from shared.errors import BadRequest, Conflict, NotPermitted, ProtocolViolation, VerificationFailed
from shared.names import Role, VisitPhase
from shared.protocol.session import SessionFact
from shared.protocol.training import TrainingFact
from shared.protocol.visit import VisitFact
from shared.service.journal import NewFact
from tests.orchestrator.orchestrator_samples import MODEL, PLACEMENT, SESSION, approval, key, manifest, planned


def running(agreed_manifest: Manifest | None = None, without: tuple[int, ...] = ()) -> SessionState:
    agreed_manifest = agreed_manifest or manifest()
    state = SessionState(SESSION, agreed_manifest, "alice", "gpu-0")
    apply(state, new_fact(SessionFact.SUBMITTED, Role.OWNER, owner_key="0f" * 32, start_model=None, inherited=None))
    for i in range(len(agreed_manifest.roster)):
        if i not in without:
            said = verify_approval(
                approval(i, agreed_manifest), key(i + 1).public, session=SESSION, manifest=agreed_manifest
            )
            apply(state, new_fact(SessionFact.APPROVED, Role.HOLDER, **said.body()))
    for fact in (new_fact(SessionFact.AGREED), new_fact(SessionFact.STARTED), claim(1, 5)):
        apply(state, fact)
    apply(state, life_opened(1, 5, resumed=False))
    apply(state, new_fact(SessionFact.PLACED, placement=PLACEMENT, model=MODEL))
    return state


def life_opened(life: int, boot_counter: int, *, resumed: bool) -> NewFact:
    about = {"life": life, "boot_counter": boot_counter, "device": "d", "backend": "EMULATED", "signing_key": "k"}
    return new_fact(SessionFact.LIFE_OPENED, **about, resumed=resumed)


def apply(state: SessionState, fact: NewFact) -> None:
    state.apply(fact.kind, fact.body, 1.0)


def close(state: SessionState, visit: str, step: int) -> None:
    for fact in (VisitFact.GRANTED, VisitFact.OFFERED, VisitFact.REPORTED, VisitFact.FENCED, VisitFact.VERIFIED):
        apply(state, new_fact(fact, visit=visit, log_size=state.tree.size))
    for trained in (TrainingFact.TRAINED, TrainingFact.VALIDATED, TrainingFact.SCRUBBED):
        apply(state, new_fact(trained, visit=visit))
    leaf = {"index": state.tree.size, "hash": "5" * 64}
    apply(state, new_fact(TrainingFact.CLOSED, visit=visit, leaf=leaf, model={**MODEL, "step": step}))


def test_a_closed_visit_moves_model_position_and_log() -> None:
    state = running()
    apply(state, planned(state))
    assert state.current is not None
    assert state.current.phase is VisitPhase.PLANNED
    close(state, "v_1", 2)
    assert (state.position, state.tree.size, state.visits_closed, state.records_done) == (1, 1, 1, {"h0": 8})
    assert state.committed is not None
    assert state.committed.step == 2
    assert state.current is None
    stop = state.next_stop()
    assert stop is not None
    assert (stop.holder, stop.index) == ("h1", 2)


def test_a_wiped_gpu_holds_nothing_until_it_is_placed_again() -> None:
    """Else a start that follows would resume what was never filled."""
    state = running()
    apply(state, life_opened(2, 5, resumed=True))
    assert state.placement is not None
    apply(state, life_opened(1, 6, resumed=False))
    assert state.placement is None
    assert state.committed is not None, "the session is where it was: this is what is filled in again"
    apply(state, new_fact(SessionFact.PLACED, placement=PLACEMENT, model=None))
    assert state.placement is not None


def test_epochs_never_come_twice_over_repeats() -> None:
    state, seen = running(), []
    for attempt in range(4):
        apply(state, planned(state, f"v_{attempt}"))
        assert state.current is not None
        seen += [state.current.epoch, state.current.fence_epoch]
        assert state.current.attempt == attempt + 1
        leaf = {"index": attempt, "hash": "6" * 64}
        apply(state, new_fact(VisitFact.RECALLED, visit=f"v_{attempt}", reason="x", blame=True, again=True, leaf=leaf))
    assert seen == sorted(set(seen))
    assert (state.position, state.blamed) == (0, 4)


def test_an_illegal_fact_raises_and_changes_nothing() -> None:
    state = running()
    apply(state, planned(state))
    before = (state.seq, state.current)
    with pytest.raises(ProtocolViolation):
        apply(state, new_fact(VisitFact.VERIFIED, visit="v_1"))
    assert (state.seq, state.current) == before


def test_a_vetoed_holder_is_passed_over_and_the_others_keep_their_records() -> None:
    state = running(manifest(quorum=2))
    apply(state, new_fact(SessionFact.VETOED, Role.HOLDER, holder="h0", document="", signature=""))
    stop = state.next_stop()
    assert stop is not None
    assert (stop.holder, stop.index, stop.cursor.start) == ("h1", 2, 0)
    apply(state, planned(state))
    assert state.position == 1
    assert not state.may_skip("h1")


def test_restored_sessions_go_on_from_the_checkpoint() -> None:
    state = running()
    apply(state, planned(state))
    close(state, "v_1", 2)
    leaf = {"index": 1, "hash": "7" * 64}
    apply(state, new_fact(SessionFact.RESTORED, checkpoint=None, position=0, model=MODEL, boot_counter=6, leaf=leaf))
    stop = state.next_stop()
    assert stop is not None
    assert (stop.index, state.tree.size) == (1, 2)


@pytest.mark.parametrize("index", [1, 5])
def test_leaves_out_of_order_are_no_log(index: int) -> None:
    state = running()
    body = {
        "by": "orchestrator",
        "checkpoint": None,
        "position": 0,
        "model": MODEL,
        "leaf": {"index": index, "hash": "7" * 64},
    }
    with pytest.raises(VerificationFailed):
        state.apply("session.restored", body, 1.0)


# ------------------------------------------------------------ approvals


def test_an_approval_is_believed_only_with_the_roster_key_over_this_manifest() -> None:
    agreed_manifest = manifest()
    verified = verify_approval(approval(0, agreed_manifest), key(1).public, session=SESSION, manifest=agreed_manifest)
    assert verified.approval.holder == "h0"
    wrong: list[tuple[Any, bytes, Manifest]] = [
        (approval(0, agreed_manifest), key(2).public, agreed_manifest),  # another holder's key
        (approval(0, manifest(rounds=4)), key(1).public, agreed_manifest),  # another manifest
        (approval(0, agreed_manifest, session="s_bbbbbbbbbbbbbbbb"), key(1).public, agreed_manifest),  # another session
        (approval(0, agreed_manifest).model_copy(update={"signature": "AAAA"}), key(1).public, agreed_manifest),
    ]
    for signed, public, of in wrong:
        with pytest.raises(VerificationFailed):
            verify_approval(signed, public, session=SESSION, manifest=of)
    with pytest.raises(NotPermitted):
        verify_approval(approval(7, agreed_manifest), key(8).public, session=SESSION, manifest=agreed_manifest)


def test_quorum_and_veto() -> None:
    state = running(manifest(quorum=2), without=(0,))
    assert agreed(state)
    apply(state, new_fact(SessionFact.VETOED, Role.HOLDER, holder="h1", document="", signature=""))
    assert not agreed(state)
    document = verify_approval(approval(1, state.manifest), key(2).public, session=SESSION, manifest=state.manifest)
    with pytest.raises(Conflict) as refusal:
        judge(state, document.approval)
    assert refusal.value.code == "already-vetoed"


def test_an_approval_commits_to_a_dataset_and_nothing_else_does() -> None:
    of = manifest()
    bare = {"records": None, "record_bytes": None, "dataset_root": None}
    for decision, changes in (
        ("approve", bare),
        ("approve", {"dataset_root": None}),
        ("veto", {"dataset_root": "d0" * 32}),
    ):
        with pytest.raises(BadRequest) as caught:
            verify_approval(approval(0, of, decision, **changes), key(1).public, session=SESSION, manifest=of)
        assert caught.value.code == "malformed-approval"


def test_a_holder_approves_one_dataset_and_no_second() -> None:
    state = running()
    assert (state.datasets["h1"].root, state.datasets["h1"].records) == ("d0" * 32, 40)
    again, other = (
        verify_approval(
            approval(1, state.manifest, dataset_root=root), key(2).public, session=SESSION, manifest=state.manifest
        )
        for root in ("d0" * 32, "d1" * 32)
    )
    assert judge(state, again.approval) is SessionFact.APPROVED
    with pytest.raises(Conflict) as caught:
        judge(state, other.approval)
    assert caught.value.code == "dataset-changed"
    apply(state, new_fact(SessionFact.REFUSED, Role.HOLDER, holder="h1", document="", signature=""))
    with pytest.raises(Conflict):  # a refusal in between forgets nothing
        judge(state, other.approval)


def test_a_failure_says_what_was_expected_and_what_was_there() -> None:
    error = VerificationFailed("another GPU", code="device-changed", remedy="Ask.", expected="a", got="b")
    state = running()
    apply(state, failed(error))
    said = {"code": "device-changed", "detail": "another GPU", "remedy": "Ask.", "expected": "a", "got": "b"}
    assert summary(state)["failure"] == said
    older = running()
    apply(older, new_fact(SessionFact.FAILED, code="device-changed", detail="another GPU", remedy="Ask."))
    assert summary(older)["failure"] == {**said, "expected": None, "got": None}
