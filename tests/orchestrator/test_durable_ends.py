"""What a session's end that is on its way to the database does to nobody yet: it may be lost."""

from __future__ import annotations

from pathlib import Path

import pytest
from sqlalchemy import Connection

from orchestrator.sessions.decisions import decide
from orchestrator.sessions.facts import new_fact
from shared.errors import Conflict, Unavailable
from shared.names import Role
from shared.protocol.session import SessionFact
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


def _full_disk(_connection: Connection) -> None:
    raise Unavailable("no space left", code="disk-full")
