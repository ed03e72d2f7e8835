"""A session is its journal, folded; what storage says is verified again; a failed commit closes the book."""

from __future__ import annotations

from base64 import b64decode
from pathlib import Path
from typing import Any

import pytest
from orchestrator_samples import SESSION, approval, key, manifest
from sqlalchemy import text, update

from orchestrator.ledger.log import event_leaf, head_row, read_head, sign_head
from orchestrator.ledger.tree import MerkleTree
from orchestrator.library import Library
from orchestrator.sessions.approvals import agreed, judge, verify_approval
from orchestrator.sessions.book import Book
from orchestrator.sessions.catalogue import Catalogue, fold
from orchestrator.sessions.facts import claim, new_fact
from orchestrator.sessions.state import SessionState
from orchestrator.tables import SESSIONS
from shared.claims.manifest import Manifest
from shared.errors import Conflict, NotPermitted, ProtocolViolation, Unavailable, VerificationFailed
from shared.names import Role, SessionPhase, VisitPhase
from shared.protocol.session import SessionFact
from shared.protocol.training import TrainingFact
from shared.protocol.visit import VisitFact
from shared.service.changes import Stopping
from shared.service.journal import Journal, NewFact
from shared.service.migrations import upgrade
from shared.service.store import Store

MODEL = {"model": "1" * 64, "optimiser": "2" * 64, "step": 0, "validation": 3.0}
PLACEMENT = {
    "code": "3",
    "control": "4",
    "model_region": 1,
    "dataset_region": 2,
    "dataset_length": 4096,
    "validation_region": None,
}


def running(agreed_manifest: Manifest | None = None, without: tuple[int, ...] = ()) -> SessionState:
    agreed_manifest = agreed_manifest or manifest()
    state = SessionState(SESSION, agreed_manifest, "alice", "gpu-0")
    apply(state, new_fact(SessionFact.SUBMITTED, Role.OWNER))
    for i in range(len(agreed_manifest.roster)):
        if i not in without:
            apply(state, new_fact(SessionFact.APPROVED, Role.HOLDER, holder=f"h{i}"))
    for fact in (new_fact(SessionFact.AGREED), new_fact(SessionFact.STARTED), claim(1, 5)):
        apply(state, fact)
    apply(
        state,
        new_fact(SessionFact.LIFE_OPENED, life=1, boot_counter=5, device="d", backend="EMULATED", signing_key="k"),
    )
    apply(state, new_fact(SessionFact.PLACED, placement=PLACEMENT, model=MODEL))
    return state


def apply(state: SessionState, fact: NewFact) -> None:
    state.apply(fact.kind, fact.body, 1.0)


def planned(state: SessionState, visit: str = "v_1") -> NewFact:
    stop = state.next_stop()
    assert stop is not None
    return new_fact(
        VisitFact.PLANNED, visit=visit, round=stop.round, index=stop.index, attempt=state.attempts + 1, holder=stop.holder,
        cursor={}, records=8, first_step=0, steps=2, epoch=state.last_epoch + 1, fence_epoch=state.last_epoch + 2, region=2,
    )  # fmt: skip


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
    apply(state, new_fact(SessionFact.VETOED, Role.HOLDER, holder="h0"))
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
    apply(state, new_fact(SessionFact.VETOED, Role.HOLDER, holder="h1"))
    assert not agreed(state)
    document = verify_approval(approval(1, state.manifest), key(2).public, session=SESSION, manifest=state.manifest)
    with pytest.raises(Conflict) as refusal:
        judge(state, document.approval)
    assert refusal.value.code == "already-vetoed"


# ------------------------------------------------------------ storage


class Room:
    """A catalogue over a real database in a folder."""

    def __init__(self, folder: Path, url: str | None = None) -> None:
        self.url = url or f"sqlite:///{folder / 'state.db'}"
        upgrade(self.url, "orchestrator")
        self.store = Store(self.url)
        self.folder = folder

    async def catalogue(self) -> Catalogue:
        await self.store.open()
        journal = Journal(lambda: bytes(32))
        return Catalogue(self.store, journal, Library(self.store, self.folder, lambda: 1.0), lambda: 1.0, Stopping())

    async def submitted(self, catalogue: Catalogue) -> Book:
        agreed_manifest, owner = manifest(), key(99)
        signature = owner.sign("gput/manifest", agreed_manifest.canonical())
        await catalogue._create(
            SESSION, agreed_manifest, agreed_manifest.canonical(), signature, "alice", owner.public, "gpu-0"
        )
        return await catalogue.open(SESSION)


async def test_what_is_committed_is_there_after_a_restart_and_nothing_else(tmp_path: Path, database_url: str) -> None:
    room = Room(tmp_path, database_url)
    catalogue = await room.catalogue()
    book = await room.submitted(catalogue)
    verified = verify_approval(
        approval(0, book.state.manifest), key(1).public, session=SESSION, manifest=book.state.manifest
    )
    await book.record(new_fact(SessionFact.APPROVED, Role.HOLDER, **verified.body()))
    book.stage(new_fact(SessionFact.CANCELLED, Role.OWNER))
    assert book.state.phase is SessionPhase.CANCELLED
    again = await (await room.catalogue()).open(SESSION)
    assert (again.state.phase, again.state.decisions) == (SessionPhase.AWAITING_APPROVAL, {"h0": "approve"})
    await room.store.close()


async def test_a_changed_manifest_row_is_noticed(tmp_path: Path) -> None:
    room = Room(tmp_path)
    catalogue = await room.catalogue()
    await room.submitted(catalogue)
    other = manifest(rounds=1).canonical()
    await room.store.write(lambda c: c.execute(update(SESSIONS).values(manifest=other)))
    with pytest.raises(VerificationFailed) as refusal:
        await (await room.catalogue()).open(SESSION)
    assert refusal.value.code == "manifest-changed"
    await room.store.close()


async def test_a_forged_approval_in_the_journal_is_noticed_by_its_signature(tmp_path: Path) -> None:
    room = Room(tmp_path)
    catalogue = await room.catalogue()
    book = await room.submitted(catalogue)
    row = await catalogue.row(SESSION)
    signed = approval(0, book.state.manifest)
    body = {
        "holder": "h0",
        "document": signed.document,
        "signature": "AAAA",
        "public_key": key(1).public.hex(),
        "reason": "",
    }
    await book.record(new_fact(SessionFact.APPROVED, Role.HOLDER, **body))
    facts = await room.store.read(lambda c: Journal(lambda: bytes(32)).load(c, SESSION))
    assert b64decode(facts[-1].body["document"])
    with pytest.raises(VerificationFailed):
        fold(row, facts)
    await room.store.close()


async def test_a_book_whose_commit_failed_takes_nothing_more(tmp_path: Path) -> None:
    room = Room(tmp_path)
    catalogue = await room.catalogue()
    book = await room.submitted(catalogue)
    await room.store.write(lambda c: c.execute(text("UPDATE journal SET seq = 9 WHERE seq = 1")))
    with pytest.raises(Conflict):
        await book.record(new_fact(SessionFact.CANCELLED, Role.OWNER))
    with pytest.raises(Unavailable):
        book.stage(new_fact(SessionFact.CANCELLED, Role.OWNER))
    await room.store.close()


async def test_a_visit_is_projected_with_its_facts_on_both_databases(tmp_path: Path, database_url: str) -> None:
    room = Room(tmp_path, database_url)
    catalogue = await room.catalogue()
    book = await room.submitted(catalogue)
    approved = [
        verify_approval(
            approval(i, book.state.manifest), key(i + 1).public, session=SESSION, manifest=book.state.manifest
        )
        for i in range(3)
    ]
    for verified in approved:
        book.stage(new_fact(SessionFact.APPROVED, Role.HOLDER, **verified.body()))
    life = {"life": 1, "boot_counter": 5, "device": "d", "backend": "EMULATED", "signing_key": "k"}
    for fact in (
        new_fact(SessionFact.AGREED), new_fact(SessionFact.STARTED), new_fact(SessionFact.LIFE_OPENED, **life),
        new_fact(SessionFact.PLACED, placement=PLACEMENT, model=MODEL), planned(book.state),
    ):  # fmt: skip
        book.stage(fact)
    tree = MerkleTree()
    leaf = event_leaf(tree, SESSION, "recalled", {"visit": "v_1"})
    head = sign_head(tree, SESSION, key(98), 1.0)
    book.stage(new_fact(VisitFact.RECALLED, visit="v_1", reason="x", blame=True, again=True, leaf=leaf.fact), leaf.row)
    book.row(head_row(head))
    await book.commit()
    rows = await room.store.read(lambda c: c.execute(text("SELECT phase FROM visits")).all())
    stored = await room.store.read(lambda c: read_head(c, SESSION))
    assert [row.phase for row in rows] == ["RECALLED"]
    assert stored is not None
    assert (stored["size"], bytes(stored["signature"])) == (0, head.signature)
    again = await (await room.catalogue()).open(SESSION)
    assert (again.state.tree.size, again.state.attempts, again.state.last_epoch) == (1, 1, 2)
    await room.store.close()
