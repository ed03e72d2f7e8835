"""Collecting heads at a start: who is asked and waited for, whose word counts, what is written down, and what ends the waiting."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import select

from orchestrator.holders.inbox import Inboxes
from orchestrator.ledger.log import event_leaf
from orchestrator.ledger.tree import MerkleTree
from orchestrator.runner.heads import Heads
from orchestrator.runner.wishes import Wishes
from orchestrator.sessions.book import Book
from orchestrator.sessions.facts import new_fact
from orchestrator.tables import LEAVES
from shared.attestation.approvals import verify_approval
from shared.attestation.head_statements import sign_head_statement, verify_head_statement
from shared.canonical import cbor_value
from shared.errors import NotPermitted, VerificationFailed
from shared.names import Role
from shared.protocol.session import SessionFact
from shared.protocol.visit import VisitFact
from shared.service.changes import Stopping
from shared.wire.visit import Signed
from tests.orchestrator.orchestrator_samples import MODEL, PLACEMENT, SESSION, Room, approval, key, planned


class Start:
    """One start of a process over a database with a running session, and holders who answer it."""

    def __init__(self, book: Book) -> None:
        self.book, self.heads = book, Heads(os.urandom)
        self.inboxes, self.wishes = Inboxes(lambda: 1000.0, Stopping()), Wishes.of(book.state, book.changes)
        self.collecting: asyncio.Task[bool] = asyncio.create_task(
            self.heads.collect(book, self.inboxes, self.wishes), name="collecting"
        )

    async def waits_for(self, *holders: str) -> None:
        for _ in range(200):
            if self.wishes.waiting_for == [f"head of holder {holder}" for holder in holders]:
                return
            await asyncio.sleep(0.005)
        raise AssertionError(self.wishes.waiting_for)

    def statement(self, by: int, log: MerkleTree, signer: int | None = None, **changes: Any) -> Signed:
        said = {
            "session": SESSION, "holder": f"h{by}", "challenge": self.heads.challenge, "size": log.size, "root": log.root(),
            "receipt": None,
        }  # fmt: skip
        return sign_head_statement(key(by + 1 if signer is None else signer), **{**said, **changes})

    def say(self, by: int, log: MerkleTree, **changes: Any) -> bool:
        signed = self.statement(by, log, **changes)
        told = self.heads.hear(self.book.state, f"h{by}", signed, key(by + 1).public)
        self.book.announce()
        return told

    async def asked(self, holder: str) -> list[str | None]:
        async def nothing(_holder: str) -> list[dict[str, Any]]:
            return []

        items = (await self.inboxes.read(holder, self.inboxes._start, 0, nothing)).items
        return [item.challenge for item in items if item.kind == "head_wanted"]

    async def confirmed(self) -> bool:
        async with asyncio.timeout(60):
            return await self.collecting


@pytest.fixture
async def room(tmp_path: Path) -> AsyncIterator[Room]:
    made = Room(tmp_path)
    yield made
    await made.store.close()


async def started(room: Room, leaves: int = 3, **changes: Any) -> Book:
    """A session in its first life, with recalled visits as leaves."""
    book = await room.submitted(await room.catalogue(), **changes)
    for i in range(3):
        said = approval(i, book.state.manifest)
        verified = verify_approval(said, key(i + 1).public, session=SESSION, manifest=book.state.manifest)
        book.stage(new_fact(SessionFact.APPROVED, Role.HOLDER, **verified.body()))
    book.stage(new_fact(SessionFact.AGREED))
    book.stage(new_fact(SessionFact.STARTED))
    if leaves:
        life = {
            "life": 1,
            "boot_counter": 5,
            "device": "d",
            "backend": "EMULATED",
            "signing_key": "k",
            "resumed": False,
        }
        book.stage(new_fact(SessionFact.LIFE_OPENED, **life))
        book.stage(new_fact(SessionFact.PLACED, placement=PLACEMENT, model=MODEL))
    for number in range(leaves):
        book.stage(planned(book.state, f"v_{number}"))
        leaf = event_leaf(book.state.tree, SESSION, "recalled", {"visit": f"v_{number}"})
        body = {"visit": f"v_{number}", "reason": "x", "blame": False, "again": True}
        book.stage(new_fact(VisitFact.RECALLED, **body, leaf=leaf.fact), leaf.row)
    await book.commit()
    return book


def log_of(book: Book, size: int, *more: bytes) -> MerkleTree:
    """The first `size` leaves of the session's log, and others after them."""
    made = MerkleTree()
    for leaf in [*(book.state.tree.leaf(i) for i in range(size)), *more]:
        made.append(leaf)
    return made


async def facts(room: Room, kind: SessionFact) -> list[Any]:
    found = await room.store.read(lambda c: room.journal().load(c, SESSION))
    return [fact.body for fact in found if fact.kind == f"session.{kind.value}"]


async def test_a_restart_goes_on_when_everybody_has_answered_and_is_a_leaf_that_anybody_can_check(room: Room) -> None:
    start = Start(await started(room))
    await start.waits_for("h0", "h1", "h2")
    assert [await start.asked(f"h{i}") for i in range(3)] == [[start.heads.challenge]] * 3
    start.say(0, log_of(start.book, 3))
    await start.waits_for("h1", "h2")
    start.say(2, log_of(start.book, 1))
    start.say(1, log_of(start.book, 0))
    assert await start.confirmed()
    assert start.wishes.waiting_for == []
    [fact] = await facts(room, SessionFact.HEADS_CONFIRMED)
    assert fact["leaf"]["index"] == 3
    leaf = await room.store.read(lambda c: c.execute(select(LEAVES.c.leaf).where(LEAVES.c.idx == 3)).scalar_one())
    _, session, kind, details = cbor_value(bytes(leaf))
    assert (session, kind) == (SESSION, "heads_confirmed")
    sizes = {}
    for item in details["statements"]:
        number = int(item["holder"][1:])
        signed = Signed(document=item["document"], signature=item["signature"])
        stated = verify_head_statement(
            signed, key=key(number + 1).public, session=SESSION, holder=item["holder"], challenge=details["challenge"]
        )
        sizes[number] = stated.size
    assert sizes == {0: 3, 1: 0, 2: 1}
    again = await (await room.catalogue()).open(SESSION)
    assert again.state.tree.root() == start.book.state.tree.root()


async def test_a_new_session_asks_as_well_and_its_log_stays_empty(room: Room) -> None:
    start = Start(await started(room, leaves=0))
    for holder in range(3):
        start.say(holder, MerkleTree())
    assert await start.confirmed()
    assert start.book.state.tree.size == 0
    assert len(await facts(room, SessionFact.HEADS_CONFIRMED)) == 1


@pytest.mark.parametrize(
    ("size", "more", "code"),
    [
        (3, [b"\x01" * 32], "log-rolled-back"),  # the database was put back
        (2, [b"\x01" * 32], "log-split-view"),  # same size, other root
        (1, [b"\x01" * 32], "log-split-view"),
    ],
)
async def test_a_holder_that_remembers_another_log_ends_it(room: Room, size: int, more: list[bytes], code: str) -> None:
    start = Start(await started(room))
    remembered = log_of(start.book, size, *more)
    assert not start.say(1, remembered)
    with pytest.raises(VerificationFailed) as refusal:
        await start.confirmed()
    assert refusal.value.code == code
    assert "h1" in refusal.value.detail
    assert remembered.root().hex() in refusal.value.detail
    [fact] = await facts(room, SessionFact.HEAD_CONTRADICTED)
    assert Signed(**{k: v for k, v in fact["statement"].items() if k != "holder"}) == start.statement(1, remembered)
    assert await facts(room, SessionFact.HEADS_CONFIRMED) == []
    assert start.book.state.tree.size == 3, "a log that is not the session's gets no leaf"


async def test_a_holder_whose_receipt_is_not_in_the_log_ends_it(room: Room) -> None:
    """Its head is older than the roll-back; the receipt that came after it is not."""
    start = Start(await started(room))
    log = log_of(start.book, 2)
    assert start.say(0, log, receipt=start.book.state.tree.leaf(2))
    assert not start.say(1, log, receipt=b"\x01" * 32)
    with pytest.raises(VerificationFailed) as refusal:
        await start.confirmed()
    assert refusal.value.code == "log-rolled-back"


async def test_a_new_session_that_holders_know_already_is_refused(room: Room) -> None:
    """The database was put back to before the first visit: nothing in it tells it from a new one."""
    start = Start(await started(room, leaves=0))
    start.say(0, log_of(start.book, 0, b"\x01" * 32))
    with pytest.raises(VerificationFailed) as refusal:
        await start.confirmed()
    assert refusal.value.code == "log-rolled-back"


async def test_whose_word_does_not_count_is_waited_for_still(room: Room) -> None:
    start = Start(await started(room))
    log, ahead = log_of(start.book, 3), log_of(start.book, 3, b"\x01" * 32)
    await start.waits_for("h0", "h1", "h2")
    for wrong in (
        {"signer": 77},  # forged
        {"challenge": "c1" * 32},  # of an earlier start
        {"session": "s_bbbbbbbbbbbbbbbb"},
        {"holder": "h1", "signer": 2},  # another holder's own
    ):
        for said in (log, ahead):  # neither confirms nor contradicts
            with pytest.raises(VerificationFailed):
                start.say(0, said, **wrong)
    with pytest.raises(VerificationFailed) as refusal:
        start.heads.hear(start.book.state, "h0", start.statement(0, log), key(77).public)
    assert refusal.value.code == "key-mismatch"
    with pytest.raises(NotPermitted):
        start.heads.hear(start.book.state, "stranger", start.statement(0, log), key(1).public)
    start.say(1, log)
    await start.waits_for("h0", "h2")
    start.say(2, log)
    start.say(0, log)
    assert await start.confirmed()


async def test_a_quorum_is_enough_and_a_late_word_is_judged_all_the_same(room: Room) -> None:
    start = Start(await started(room, quorum=2))
    start.say(0, log_of(start.book, 3))
    start.say(1, log_of(start.book, 3))
    assert await start.confirmed()
    assert start.heads.wants(start.book.state, "h2"), "it is asked all the same"
    assert not start.say(2, log_of(start.book, 3, b"\x01" * 32, b"\x02" * 32))
    with pytest.raises(VerificationFailed) as refusal:
        await start.heads.check(start.book)
    assert refusal.value.code == "log-rolled-back"
    with pytest.raises(VerificationFailed):
        await start.heads.collect(start.book, start.inboxes, start.wishes)


async def test_who_vetoes_is_awaited_no_more(room: Room) -> None:
    start = Start(await started(room, quorum=1))
    await start.waits_for("h0", "h1", "h2")
    await start.book.record(new_fact(SessionFact.VETOED, Role.HOLDER, holder="h1", document="", signature=""))
    await start.waits_for("h0", "h2")
    start.say(0, log_of(start.book, 2))
    assert await start.confirmed()


async def test_a_veto_that_loses_the_quorum_ends_the_waiting(room: Room) -> None:
    start = Start(await started(room))
    await start.waits_for("h0", "h1", "h2")
    await start.book.record(new_fact(SessionFact.VETOED, Role.HOLDER, holder="h1", document="", signature=""))
    with pytest.raises(VerificationFailed) as refusal:
        await start.confirmed()
    assert refusal.value.code == "quorum-lost"


@pytest.mark.parametrize("wish", ["pause", "cancel", "stop"])
async def test_a_wish_ends_the_waiting_without_a_confirmation(room: Room, wish: str) -> None:
    start = Start(await started(room))
    await start.waits_for("h0", "h1", "h2")
    start.wishes.wish(wish, "alice")
    assert not await start.confirmed()
    assert await facts(room, SessionFact.HEADS_CONFIRMED) == []


async def test_it_goes_on_collecting_where_a_wish_interrupted_it(room: Room) -> None:
    start = Start(await started(room))
    start.say(0, log_of(start.book, 3))
    await start.waits_for("h1", "h2")
    start.wishes.wish("pause", "alice")
    assert not await start.confirmed()
    start.wishes.pause = False
    start.collecting = asyncio.create_task(start.heads.collect(start.book, start.inboxes, start.wishes))
    await start.waits_for("h1", "h2")
    start.say(1, log_of(start.book, 3))
    start.say(2, log_of(start.book, 3))
    assert await start.confirmed()
    assert [await start.asked(f"h{i}") for i in range(3)] == [[start.heads.challenge]] * 3, "nobody is asked twice"


async def test_another_start_asks_over_another_challenge(room: Room) -> None:
    book = await started(room)
    first, second = Start(book), Start(book)
    await first.waits_for("h0", "h1", "h2")
    await second.waits_for("h0", "h1", "h2")
    old = first.statement(0, log_of(book, 3))
    with pytest.raises(VerificationFailed) as refusal:
        second.heads.hear(book.state, "h0", old, key(1).public)
    assert refusal.value.code == "head-challenge"
    for start in (first, second):
        start.collecting.cancel()
