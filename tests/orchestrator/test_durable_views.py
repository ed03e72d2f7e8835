"""What is shown is durable: while a commit is held back the old state is shown, everywhere; after it the new one, everywhere."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest.mock import Mock

import httpx2
import pytest
from sqlalchemy import Connection, text

from orchestrator.api.sessions import _row_view
from orchestrator.sessions.facts import new_fact
from orchestrator.sessions.views import summary
from shared.attestation.approvals import verify_approval
from shared.errors import Conflict
from shared.names import Role, SessionPhase
from shared.protocol.session import SessionFact
from shared.service.app import service_state
from shared.service.store import Store
from tests.orchestrator import orchestrator_world as rest
from tests.orchestrator.orchestrator_samples import MODEL, PLACEMENT, SESSION, approval, key, manifest, planned
from tests.orchestrator.test_session_fold import claim, life_opened
from tests.orchestrator.test_session_storage import Room

CANCELLED = new_fact(SessionFact.CANCELLED, Role.OWNER)


class Stall:
    """Rides in every transaction and holds it back, on the store's writer thread, while the gate is shut."""

    def __init__(self, store: Store) -> None:
        self._gate, self._reached = threading.Event(), threading.Event()
        self._gate.set()
        store.add_rider(self)

    def write(self, _connection: Connection) -> None:
        self._reached.set()
        assert self._gate.wait(20)

    def settle(self, *, committed: bool) -> None:
        """Nothing rides along."""

    @contextmanager
    def holding(self) -> Iterator[None]:
        """Nothing becomes durable inside."""
        self._gate.clear()
        self._reached.clear()
        try:
            yield
        finally:
            self._gate.set()

    async def reached(self) -> None:
        """A commit stands at the gate."""
        assert await asyncio.to_thread(self._reached.wait, 10)
        await asyncio.sleep(0.05)


def approved_body(holder: int) -> dict[str, Any]:
    """A real approval, as the journal keeps it."""
    said = approval(holder, manifest())
    return verify_approval(said, key(holder + 1).public, session=SESSION, manifest=manifest()).body()


@pytest.fixture
async def room(tmp_path: Path) -> AsyncIterator[Room]:
    room = Room(tmp_path)
    yield room
    await room.store.close()


async def shown(client: httpx2.AsyncClient, session: str) -> tuple[Any, ...]:
    """What the session's page says; the listing and the ETag must say the same."""
    page = await client.get(f"/v1/sessions/{session}")
    [row] = (await client.get("/v1/sessions")).json()["items"]
    body = page.json()
    assert page.headers["etag"] == f'"{body["version"]}"'
    assert all(row[name] == body[name] for name in ("phase", "version", "updated_at", "log"))
    assert [h["decision"] for h in row["holders"]] == [h["decision"] for h in body["holders"]]
    return body["phase"], body["version"], [h["holder"] for h in body["holders"] if h["decision"]]


async def test_a_held_back_commit_is_not_shown(world: rest.World) -> None:
    owner = await rest.prepared(world)
    session = (await rest.submit(owner)).json()["id"]
    store = service_state(world.app).store
    assert store is not None
    stall = Stall(store)
    said = approval(0, manifest(program=rest.PROGRAM), session=session).model_dump()
    with stall.holding():
        approving = asyncio.ensure_future(world.client(key(1)).post(f"/v1/sessions/{session}/approvals", json=said))
        await stall.reached()
        assert world.app.state.orchestrator.catalogue._books[session].state.decisions == {"h0": "approve"}
        assert await shown(owner, session) == ("AWAITING_APPROVAL", 1, [])
        assert (await owner.get(f"/v1/sessions/{session}?wait=0.3&version=1")).json()["version"] == 1
        assert not approving.done()
    assert (await approving).status_code == 201
    assert await shown(owner, session) == ("AWAITING_APPROVAL", 2, ["h0"])


async def test_who_waits_for_another_phase_hears_of_nothing_else(world: rest.World) -> None:
    owner = await rest.prepared(world)
    session = (await rest.submit(owner)).json()["id"]
    at = f"/v1/sessions/{session}"
    end = asyncio.ensure_future(owner.get(f"{at}?wait=30&phase=AWAITING_APPROVAL"))
    said = approval(0, manifest(program=rest.PROGRAM), session=session).model_dump()
    assert (await world.client(key(1)).post(f"{at}/approvals", json=said)).status_code == 201
    assert (await owner.get(f"{at}?wait=30&version=1")).json()["version"] == 2  # whoever waits for any fact has it
    assert not end.done()
    assert (await owner.get(f"{at}?wait=30&phase=RUNNING")).json()[
        "phase"
    ] == "AWAITING_APPROVAL"  # it is in another: at once
    assert (await owner.get(f"{at}?wait=0.05&phase=AWAITING_APPROVAL")).json()["version"] == 2  # the time was over
    assert (await owner.get(f"{at}?wait=1&phase=TRAINING")).status_code == 422
    assert (await owner.post(f"{at}/cancel")).status_code == 202
    assert (await end).json()["phase"] == "CANCELLED"


async def test_neither_are_events_nor_an_end(world: rest.World) -> None:
    owner = await rest.prepared(world)
    session = (await rest.submit(owner)).json()["id"]
    store = service_state(world.app).store
    assert store is not None
    stall = Stall(store)
    with stall.holding():
        first = asyncio.ensure_future(owner.post(f"/v1/sessions/{session}/cancel"))
        watching = asyncio.ensure_future(owner.get(f"/v1/sessions/{session}/events"))  # ends with the session
        news = asyncio.ensure_future(owner.get(f"/v1/sessions/{session}?wait=10&version=1"))
        await stall.reached()
        second = asyncio.ensure_future(owner.post(f"/v1/sessions/{session}/cancel"))
        await asyncio.sleep(0.2)
        assert await shown(owner, session) == ("AWAITING_APPROVAL", 1, [])
        # Nor is anybody told that it is done: who is told may rely on it.
        assert not any(task.done() for task in (first, second, watching, news))
    assert [(await task).status_code for task in (first, second)] == [202, 202]
    assert (await news).json()["phase"] == "CANCELLED"
    assert '"fact":"cancelled"' in (await watching).text
    assert await shown(owner, session) == ("CANCELLED", 2, [])


async def test_the_shown_state_is_the_one_a_restart_would_fold(room: Room) -> None:
    book = await room.submitted(await room.catalogue())
    life = {"life": 1, "boot_counter": 5, "device": "d", "backend": "EMULATED", "signing_key": "k", "resumed": False}
    for i in range(3):
        book.stage(new_fact(SessionFact.APPROVED, Role.HOLDER, **approved_body(i)))
    for fact in (
        new_fact(SessionFact.AGREED), new_fact(SessionFact.STARTED), new_fact(SessionFact.LIFE_OPENED, **life),
        new_fact(SessionFact.PLACED, placement=PLACEMENT, model=MODEL),
    ):  # fmt: skip
        await book.record(fact)
    book.stage(planned(book.state))
    assert (book.state.current is None, book.durable.current) == (False, None)
    folded = (await (await room.catalogue()).open(SESSION)).durable
    assert summary(book.durable) == summary(folded)
    assert folded.phase is SessionPhase.RUNNING
    await book.commit()
    folded = (await (await room.catalogue()).open(SESSION)).durable
    assert summary(book.durable) == summary(book.state) == summary(folded)
    assert book.durable.current == folded.current is not None


async def test_a_failed_commit_shows_nothing_and_its_book_is_opened_again(room: Room) -> None:
    catalogue = await room.catalogue()
    book = await room.submitted(catalogue)
    await room.store.write(lambda c: c.execute(text("UPDATE journal SET seq = 9 WHERE seq = 1")))
    with pytest.raises(Conflict):
        await book.record(CANCELLED)
    assert (book.state.phase, book.durable.phase) == (SessionPhase.CANCELLED, SessionPhase.AWAITING_APPROVAL)
    await room.store.write(lambda c: c.execute(text("UPDATE journal SET seq = 1 WHERE seq = 9")))
    again = await catalogue.open(SESSION)
    assert again is not book
    assert again.state.phase is SessionPhase.AWAITING_APPROVAL


async def test_a_book_opened_again_holds_what_another_was_just_writing(room: Room) -> None:
    """A holder's approval is on its way to the journal while the session's runner begins a new life."""
    catalogue = await room.catalogue()
    book = await room.submitted(catalogue)
    stall = Stall(room.store)
    with stall.holding():
        approving = asyncio.ensure_future(book.record(new_fact(SessionFact.APPROVED, Role.HOLDER, **approved_body(0))))
        await stall.reached()
        reopening = asyncio.ensure_future(catalogue.reopen(SESSION))
        await asyncio.sleep(0.05)
        assert not reopening.done()
    await approving
    fresh = await reopening
    assert fresh is not book
    assert fresh.state.decisions == fresh.durable.decisions == {"h0": "approve"}
    await fresh.record(CANCELLED)
    assert (await catalogue.open(SESSION)).durable.phase is SessionPhase.CANCELLED


async def test_a_list_says_of_a_session_what_its_page_says(room: Room) -> None:
    """The summary in a session's row is older than the row: its version, moment and evidence back end were those of the last approval."""
    catalogue = await room.catalogue()
    book = await room.submitted(catalogue)
    house = SimpleNamespace(settings=SimpleNamespace(pause_limit_s=60.0))
    parts: Any = SimpleNamespace(house=house, supervisor=Mock())
    facts = [new_fact(SessionFact.APPROVED, Role.HOLDER, **approved_body(number)) for number in range(3)]
    facts += [
        new_fact(SessionFact.AGREED), new_fact(SessionFact.STARTED), claim(1, 5), life_opened(1, 5, resumed=False),
        new_fact(SessionFact.PLACED, placement=PLACEMENT, model=MODEL), new_fact(SessionFact.PAUSE_ASKED, Role.OWNER, party="alice"),
    ]  # fmt: skip
    for fact in facts:
        await book.record(fact)
        page, [row] = summary(book.durable), await catalogue.page(0, 10)
        shown = _row_view(parts, row)
        told = ("version", "updated_at", "backend", "phase", "paused_at", "stopped_early", "holders")
        assert {name: shown[name] for name in told} == {name: page[name] for name in told}, fact.kind
    assert shown["backend"] == "EMULATED"
    assert shown["version"] == len(facts) + 1
