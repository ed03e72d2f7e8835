"""Who waits for a commit waits until what it covers is durable, whoever begins the write."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import text

from orchestrator.sessions.facts import new_fact
from shared.attestation.approvals import verify_approval
from shared.errors import Conflict
from shared.names import Role
from shared.protocol.session import SessionFact
from shared.service.journal import NewFact
from tests.orchestrator.orchestrator_samples import SESSION, Room, approval, key


async def _approved(room: Room) -> tuple[Any, Callable[[int], NewFact]]:
    book = await room.submitted(await room.catalogue())

    def word(holder: int) -> NewFact:
        verified = verify_approval(
            approval(holder, book.state.manifest), key(holder + 1).public, session=SESSION, manifest=book.state.manifest
        )
        return new_fact(SessionFact.APPROVED, Role.HOLDER, **verified.body())

    return book, word


async def test_who_waits_for_a_write_that_somebody_else_begins_waits_for_that(tmp_path: Path) -> None:
    room = Room(tmp_path)
    book, word = await _approved(room)
    book.stage(word(0))
    waiting = asyncio.ensure_future(book.commit())
    await asyncio.sleep(0)  # its write is to begin with the loop's next turn
    book.begin_commit()
    book.stage(word(1))  # by another, before that turn
    await book.commit()
    assert book.durable.decisions.keys() == {"h0", "h1"}
    await waiting
    await room.store.close()


async def test_who_waits_for_a_write_that_somebody_else_begins_hears_of_its_failure(tmp_path: Path) -> None:
    room = Room(tmp_path)
    book, word = await _approved(room)
    await room.store.write(lambda c: c.execute(text("UPDATE journal SET seq = 9 WHERE seq = 1")))
    book.stage(word(0))
    waiting = asyncio.ensure_future(book.commit())
    await asyncio.sleep(0)
    book.begin_commit()
    with pytest.raises(Conflict):
        await waiting
    assert book.closed
    await room.store.close()
