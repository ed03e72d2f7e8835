"""What a holder may say of a session, and how often: every decision stays in the journal and is verified again with each load."""

from __future__ import annotations

import asyncio
import threading
from pathlib import Path
from typing import Any
from unittest.mock import patch

import httpx2
import pytest
from sqlalchemy import delete

from orchestrator.sessions import loading
from orchestrator.sessions.approvals import MOST_WORDS
from orchestrator.sessions.state import SessionState
from orchestrator.tables import APPROVALS, SESSIONS
from shared.errors import NotFound
from shared.service.app import service_state
from tests.orchestrator.orchestrator_samples import SESSION, Room, approval, key, manifest
from tests.orchestrator.orchestrator_world import PROGRAM, World, prepared, submit


class Holder:
    """h0 of a session that waits for approvals."""

    def __init__(self, world: World, session: str) -> None:
        self.world, self.session, self.path = world, session, f"/v1/sessions/{session}/approvals"
        self.client = world.client(key(1))

    async def say(self, decision: str, at: int, reason: str = "") -> httpx2.Response:
        said = approval(0, manifest(program=PROGRAM), decision, self.session, reason=reason, at=at)
        return await self.client.post(self.path, json=said.model_dump())

    @property
    def state(self) -> SessionState:
        return self.world.app.state.orchestrator.catalogue._books[self.session].durable  # type: ignore[no-any-return]


@pytest.fixture
async def holder(world: World) -> Holder:
    owner = await prepared(world)
    return Holder(world, (await submit(owner)).json()["id"])


async def test_what_stands_is_not_entered_again(holder: Holder) -> None:
    first = await holder.say("refuse", at=1, reason="no")
    assert first.status_code == 201
    facts = holder.state.seq
    for at in (2, 3):
        again = await holder.say("refuse", at=at, reason="no")
        assert (again.status_code, again.json()) == (200, first.json())
    assert holder.state.seq == facts
    assert (await holder.say("refuse", at=4, reason="still no")).status_code == 201
    assert (await holder.say("veto", at=5)).status_code == 201
    assert (await holder.say("veto", at=6)).status_code == 200
    late = await holder.say("refuse", at=1, reason="no")  # a repeat that comes late changes nothing
    assert (late.status_code, late.json(), holder.state.decisions) == (200, first.json(), {"h0": "veto"})


async def test_what_was_said_is_read_from_the_journal_and_not_from_rows(holder: Holder) -> None:
    first = await holder.say("refuse", at=1)
    store = service_state(holder.world.app).store
    assert store is not None
    await store.write(lambda connection: connection.execute(delete(APPROVALS)))
    again = await holder.say("refuse", at=1)
    assert (again.status_code, again.json()) == (200, first.json())


async def test_a_holder_that_goes_on_and_on_is_heard_once_more_by_its_veto(holder: Holder) -> None:
    for at in range(MOST_WORDS):
        assert (await holder.say("approve" if at % 2 else "refuse", at=at)).status_code == 201
    refused = await holder.say("refuse", at=MOST_WORDS)
    assert (refused.status_code, refused.json()["code"]) == (409, "too-many-decisions")
    assert holder.state.decisions == {"h0": "approve"}
    assert (await holder.say("veto", at=MOST_WORDS + 1)).status_code == 201
    await holder.world.app.state.orchestrator.catalogue.reopen(holder.session)
    assert (holder.state.decisions, len(holder.state.words["h0"])) == ({"h0": "veto"}, MOST_WORDS + 1)


async def test_the_event_loop_goes_on_while_a_journal_is_folded(tmp_path: Path) -> None:
    """A lease of the database has to be renewed meanwhile, or the process loses its term with every long journal."""
    room, going_on, fold = Room(tmp_path), threading.Event(), loading.fold
    await room.submitted(await room.catalogue())

    def waits(*told: Any) -> SessionState:
        assert going_on.wait(5), "the event loop stood still"
        return fold(*told)

    catalogue = await room.catalogue()
    with patch("orchestrator.sessions.loading.fold", waits):
        opening = [asyncio.ensure_future(catalogue.open(SESSION)) for _ in range(3)]
        await asyncio.sleep(0.02)
        going_on.set()
        books = await asyncio.gather(*opening)
    assert books[0] is books[1] is books[2]
    await room.store.close()


async def test_a_session_that_is_removed_while_it_is_folded_is_not_remembered(tmp_path: Path) -> None:
    room = Room(tmp_path)
    await room.submitted(await room.catalogue())
    catalogue, fold = await room.catalogue(), loading.fold
    begun, gone = threading.Event(), threading.Event()

    def slow(*told: Any) -> SessionState:
        begun.set()
        assert gone.wait(5)
        return fold(*told)

    with patch("orchestrator.sessions.loading.fold", slow):
        opening = asyncio.ensure_future(catalogue.open(SESSION))
        assert await asyncio.to_thread(begun.wait, 5)
        await room.store.write(lambda connection: connection.execute(delete(SESSIONS)))
        catalogue.forget(SESSION)
        gone.set()
        with pytest.raises(NotFound):
            await opening
    assert catalogue._books == {}
    await room.store.close()
