"""What storage says of a session is verified again; a failed commit closes the book; both databases give the same."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pytest
from sqlalchemy import Connection, delete, text, update

from orchestrator.ledger.log import event_leaf, head_row, read_head, sign_head
from orchestrator.ledger.tree import MerkleTree
from orchestrator.sessions.catalogue import KEPT_ENDED
from orchestrator.sessions.facts import VOCABULARY, new_fact
from orchestrator.sessions.folding import fold
from orchestrator.sessions.visit_state import VisitState
from orchestrator.tables import SESSIONS
from shared.attestation.approvals import verify_approval
from shared.errors import ConfigurationError, Conflict, Unavailable, VerificationFailed
from shared.names import Role, SessionPhase
from shared.protocol.session import SessionFact
from shared.protocol.visit import VisitFact
from shared.service.journal import Journal, NewFact
from shared.service.tables import JOURNAL
from tests.adversary.rows import attack
from tests.orchestrator.orchestrator_samples import MODEL, PLACEMENT, SESSION, Room, approval, key, manifest, planned


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


@attack("V22", any="stopped: the manifest is verified again when loaded")
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


@attack("V22", any="stopped: approvals are verified again when loaded")
async def test_a_forged_approval_in_the_journal_is_noticed_by_its_signature(tmp_path: Path) -> None:
    room = Room(tmp_path)
    catalogue = await room.catalogue()
    book = await room.submitted(catalogue)
    row = await catalogue.row(SESSION)
    honest = verify_approval(
        approval(0, book.state.manifest), key(1).public, session=SESSION, manifest=book.state.manifest
    ).body()
    await book.record(new_fact(SessionFact.APPROVED, Role.HOLDER, **honest))
    journal = Journal(room.keyring.journal_key, VOCABULARY)
    facts = await room.store.read(lambda c: journal.load(c, SESSION))
    assert fold(row, facts).decisions == {"h0": "approve"}
    for forged in ({"signature": "AAAA"}, {"dataset_root": "d1" * 32}, {"records": 41}, {"holder": "h1"}):
        changed = replace(facts[-1], body={**facts[-1].body, **forged})
        with pytest.raises(VerificationFailed):
            fold(row, [*facts[:-1], changed])
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
    life = {"life": 1, "boot_counter": 5, "device": "d", "backend": "EMULATED", "signing_key": "k", "resumed": False}
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
    with patch.object(VisitState, "view", autospec=True, side_effect=VisitState.view) as viewed:
        await book.commit()
    assert viewed.call_count == 1  # a row is made once a commit, whatever the visit went through in between
    rows = await room.store.read(lambda c: c.execute(text("SELECT phase FROM visits")).all())
    stored = await room.store.read(lambda c: read_head(c, SESSION))
    assert [row.phase for row in rows] == ["RECALLED"]
    assert stored is not None
    assert (stored["size"], bytes(stored["signature"])) == (0, head.signature)
    again = await (await room.catalogue()).open(SESSION)
    assert (again.state.tree.size, again.state.attempts, again.state.last_epoch) == (1, 1, 2)
    await room.store.close()


async def test_a_visits_row_follows_it_from_commit_to_commit(tmp_path: Path) -> None:
    room = Room(tmp_path)
    book = await room.submitted(await room.catalogue())
    for i in range(3):
        said = approval(i, book.state.manifest)
        verified = verify_approval(said, key(i + 1).public, session=SESSION, manifest=book.state.manifest)
        book.stage(new_fact(SessionFact.APPROVED, Role.HOLDER, **verified.body()))
    life = {"life": 1, "boot_counter": 5, "device": "d", "backend": "EMULATED", "signing_key": "k", "resumed": False}
    book.stage(new_fact(SessionFact.AGREED))
    book.stage(new_fact(SessionFact.STARTED))
    book.stage(new_fact(SessionFact.LIFE_OPENED, **life))
    book.stage(new_fact(SessionFact.PLACED, placement=PLACEMENT, model=MODEL))
    found = []
    for visit in ("v_1", "v_2"):
        await book.record(planned(book.state, visit))
        found.append(await _phases(room))
        leaf = event_leaf(book.state.tree, SESSION, "recalled", {"visit": visit})
        fact = new_fact(VisitFact.RECALLED, visit=visit, reason="x", blame=True, again=True, leaf=leaf.fact)
        await book.record(fact, leaf.row)
    found.append(await _phases(room))
    assert found == [
        {"v_1": "PLANNED"}, {"v_1": "RECALLED", "v_2": "PLANNED"}, {"v_1": "RECALLED", "v_2": "RECALLED"},
    ]  # fmt: skip
    await room.store.close()


async def _phases(room: Room) -> dict[str, str]:
    rows = await room.store.read(lambda c: c.execute(text("SELECT id, phase, data FROM visits")).all())
    assert all(json.loads(row.data)["phase"] == row.phase for row in rows)
    return {row.id: row.phase for row in rows}


async def test_a_journal_cut_short_under_a_running_process_is_refused_and_stops_no_other_session(
    tmp_path: Path,
) -> None:
    """Each of its rows verifies; only this process knows that there were more."""
    room = Room(tmp_path)
    catalogue = await room.catalogue()
    book, other = await room.submitted(catalogue), await room.submitted(catalogue, "s_bbbbbbbbbbbbbbbb")
    for i in range(2):
        verified = verify_approval(
            approval(i, book.state.manifest), key(i + 1).public, session=SESSION, manifest=book.state.manifest
        )
        await book.record(new_fact(SessionFact.APPROVED, Role.HOLDER, **verified.body()))
    await catalogue.reopen(SESSION)
    await room.store.write(lambda c: c.execute(text("DELETE FROM journal WHERE seq = 3")))
    for _ in range(2):
        with pytest.raises(VerificationFailed) as refusal:
            await catalogue.reopen(SESSION)
        assert refusal.value.code == "journal-tampered"
    assert [book.state.id for book in await catalogue.live()] == [other.state.id]
    await room.store.close()


async def test_a_commit_that_failed_is_no_loss(tmp_path: Path) -> None:
    """What never became durable is not missed when the book is opened again."""
    room = Room(tmp_path)
    catalogue = await room.catalogue()
    book = await room.submitted(catalogue)
    with pytest.raises(Unavailable):
        await book.record(new_fact(SessionFact.CANCELLED, Role.OWNER), _full_disk)
    again = await catalogue.reopen(SESSION)
    assert (again.state.phase, again.head) == (SessionPhase.AWAITING_APPROVAL, book.head)
    await again.record(new_fact(SessionFact.CANCELLED, Role.OWNER))
    assert again.head.seq == 2
    await room.store.close()


def _full_disk(_connection: Connection) -> None:
    raise Unavailable("no space left", code="disk-full")


@pytest.mark.parametrize("fact", [NewFact("session.dreamt", {}), NewFact("session.agreed/2", {"by": "orchestrator"})])
async def test_a_session_that_a_newer_version_went_on_with_is_refused_and_no_other(
    tmp_path: Path, fact: NewFact
) -> None:
    room = Room(tmp_path)
    catalogue = await room.catalogue()
    await room.submitted(catalogue)
    await room.submitted(catalogue, "s_other00000000000")
    await room.store.write(lambda c: room.journal().append(c, SESSION, [fact], expected_seq=1, at=2.0))
    again = await room.catalogue()
    with pytest.raises(ConfigurationError, match="does not know") as refusal:
        await again.open(SESSION)
    assert refusal.value.code == "newer-journal"
    assert [book.state.id for book in await again.live()] == ["s_other00000000000"]
    await room.store.close()


async def test_a_submission_of_before_weights_could_be_given_is_read(tmp_path: Path) -> None:
    fact = new_fact(SessionFact.SUBMITTED, Role.OWNER, manifest="0", owner="alice")
    kind, body = VOCABULARY.read(fact.kind, fact.body)
    assert (kind, body["start_model"], body["owner"]) == (fact.kind, None, "alice")


async def test_books_of_ended_sessions_do_not_pile_up(tmp_path: Path) -> None:
    room = Room(tmp_path)
    catalogue = await room.catalogue()
    sessions = [f"s_{number:016d}" for number in range(KEPT_ENDED + 4)]
    for session in sessions:
        book = await room.submitted(catalogue, session)
        await book.record(new_fact(SessionFact.CANCELLED, Role.OWNER))
    living = await room.submitted(catalogue, "s_living0000000000")
    assert len(catalogue._books) == KEPT_ENDED + 1
    again = await catalogue.open(sessions[0])
    assert (again.state.phase, again.state.seq) == (SessionPhase.CANCELLED, 2)
    assert await catalogue.open("s_living0000000000") is living
    # What was seen of the journals that were let go still counts.
    await room.store.write(
        lambda c: c.execute(delete(JOURNAL).where(JOURNAL.c.stream == sessions[1], JOURNAL.c.seq == 2))
    )
    with pytest.raises(VerificationFailed):
        await catalogue.open(sessions[1])
    await room.store.close()


async def test_who_commits_at_the_same_moment_shares_a_write_and_its_fate(tmp_path: Path) -> None:
    """Two who say something in one turn of the event loop: no write says "durable" of a fact that another write carries."""
    room = Room(tmp_path)
    book = await room.submitted(await room.catalogue())
    said: list[dict[str, Any]] = [
        verify_approval(
            approval(i, book.state.manifest), key(i + 1).public, session=SESSION, manifest=book.state.manifest
        ).body()
        for i in range(2)
    ]
    enqueue, gone = room.store.enqueue, Unavailable("lost while it committed", code="database-unreachable")

    writes = []

    async def told(written: asyncio.Future[Any], *, first: bool) -> Any:
        value = await written
        if first:
            raise gone
        return value

    def first_unheard(act: Callable[[Connection], Any]) -> asyncio.Future[Any]:
        writes.append(act)
        return asyncio.ensure_future(told(enqueue(act), first=len(writes) == 1))

    with patch.object(room.store, "enqueue", first_unheard):
        both = await asyncio.gather(
            *(book.record(new_fact(SessionFact.APPROVED, Role.HOLDER, **body)) for body in said),
            return_exceptions=True,
        )
    assert both == [gone, gone]
    assert len(writes) == 1
    await room.store.close()
