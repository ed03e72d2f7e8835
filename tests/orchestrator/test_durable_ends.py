"""What is on its way to the database decides nothing for good: it may be lost. And nobody who reads the journal meanwhile misses it."""

from __future__ import annotations

import asyncio
import os
import threading
from pathlib import Path

import pytest
from sqlalchemy import Connection

from orchestrator.holders.inbox import Inboxes
from orchestrator.runner.heads import Heads
from orchestrator.runner.wishes import Wishes
from orchestrator.sessions.book import Book
from orchestrator.sessions.decisions import decide
from orchestrator.sessions.facts import new_fact
from shared.errors import Conflict, Unavailable, VerificationFailed
from shared.names import Role
from shared.protocol.session import SessionFact
from shared.service.changes import Stopping
from tests.orchestrator.orchestrator_samples import SESSION, Room, approval, key


async def test_a_session_may_be_forgotten_once_its_end_is_durable(tmp_path: Path) -> None:
    room = Room(tmp_path)
    catalogue = await room.catalogue()
    book = await room.submitted(catalogue)
    book.stage(new_fact(SessionFact.CANCELLED, Role.OWNER))
    assert not catalogue.may_forget(SESSION)
    await book.commit()
    assert catalogue.may_forget(SESSION)
    await room.store.close()


@pytest.mark.parametrize("lost", [True, False])
async def test_a_holder_is_refused_for_an_end_that_is_durable_only(lost: bool, tmp_path: Path) -> None:
    room = Room(tmp_path)
    book = await room.submitted(await room.catalogue())
    book.stage(new_fact(SessionFact.CANCELLED, Role.OWNER), *([_full_disk] if lost else []))
    said = decide(book, approval(0, book.state.manifest), caller="h0", public_key=key(1).public)
    with pytest.raises(Unavailable if lost else Conflict) as refusal:
        await said
    assert refusal.value.code == ("disk-full" if lost else "session-ended")
    assert book.durable.ended is not lost
    await room.store.close()


@pytest.mark.parametrize("lost", [True, False])
async def test_a_session_fails_for_a_veto_that_is_durable_only(lost: bool, tmp_path: Path) -> None:
    room = Room(tmp_path)
    book = await room.submitted(await room.catalogue())
    for holder in range(3):
        await _says(book, holder)
    heads = Heads(os.urandom)
    waiting = asyncio.create_task(heads.collect(book, Inboxes(lambda: 1.0, Stopping()), Wishes(book.changes)))
    written = threading.Event()

    def late(connection: Connection) -> None:
        assert written.wait(60)
        if lost:
            _full_disk(connection)

    book.row(late)
    veto = asyncio.create_task(_says(book, 0, "veto"))
    for _ in range(3):  # it is staged, and being written
        await asyncio.sleep(0)
    assert book.state.decisions["h0"] == "veto"
    book.announce()  # as whoever else has something to say
    await asyncio.wait([waiting], timeout=0.1)
    written.set()
    with pytest.raises(Unavailable if lost else VerificationFailed) as end:
        await waiting
    assert end.value.code == ("disk-full" if lost else "quorum-lost")
    assert isinstance((await asyncio.gather(veto, return_exceptions=True))[0], Unavailable) is lost
    await room.store.close()


async def test_who_opens_a_book_while_it_is_opened_again_finds_what_was_on_its_way(tmp_path: Path) -> None:
    """A runner whose life broke has closed the book; somebody's word is still being written, and somebody else looks at the session."""
    room, begun, go_on = Room(tmp_path), threading.Event(), threading.Event()
    catalogue = await room.catalogue()
    book = await room.submitted(catalogue)

    def slow(_connection: Connection) -> None:
        begun.set()
        assert go_on.wait(60)

    book.row(slow)
    said = asyncio.create_task(_says(book, 0))
    await asyncio.to_thread(begun.wait, 60)
    runner, other = (asyncio.create_task(act(SESSION)) for act in (catalogue.reopen, catalogue.open))
    await asyncio.wait([runner, other], timeout=0.1)
    go_on.set()
    await said
    fresh = await runner
    assert fresh is await other
    assert fresh.state.decisions == fresh.durable.decisions == {"h0": "approve"}
    await _says(fresh, 1)
    await room.store.close()


async def _says(book: Book, holder: int, decision: str = "approve") -> None:
    said = approval(holder, book.state.manifest, decision)
    await decide(book, said, caller=f"h{holder}", public_key=key(holder + 1).public)


def _full_disk(_connection: Connection) -> None:
    raise Unavailable("no space left", code="disk-full")
