"""A commit that took effect though nobody heard of it: what follows from it happens all the same, and nobody has to say it twice."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any
from unittest.mock import patch

import pytest
from sqlalchemy import Connection

from shared.errors import Unavailable
from shared.service.app import service_state
from shared.service.journal import Journal, NewFact
from shared.service.store import Store
from tests.world.world import PATIENCE_S, NewWorld, World

GONE = Unavailable("the connection was lost while it committed", code="database-unreachable")


@contextmanager
def unheard(world: World, kind: str) -> Iterator[list[str]]:
    """The orchestrator's first commit of a `kind` of fact is durable, and then reported as failed; lists it once it has happened."""
    app = world["orchestrator"].app
    assert app is not None
    mine, met, done = service_state(app).store, list[str](), list[str]()
    append, enqueue = Journal.append, Store.enqueue

    def appended(
        journal: Journal, connection: Connection, stream: str, facts: Sequence[NewFact], **options: Any
    ) -> Any:
        head = append(journal, connection, stream, facts, **options)
        if not done and any(fact.kind == kind for fact in facts):
            met.append(stream)
        return head

    def enqueued(store: Store, act: Callable[[Connection], Any]) -> asyncio.Future[Any]:
        wrote_it = False

        def watched(connection: Connection) -> Any:
            nonlocal wrote_it
            before = len(met)
            value = act(connection)  # several share a transaction, one after another on the writer's thread
            wrote_it = len(met) > before
            return value

        async def told(written: asyncio.Future[Any]) -> Any:
            value = await written
            if store is mine and not done and wrote_it:
                done.append(kind)
                raise GONE
            return value

        return asyncio.ensure_future(told(enqueue(store, watched)))

    with patch.object(Journal, "append", appended), patch.object(Store, "enqueue", enqueued):
        yield done


async def _refused(world: World, session: str, word: str) -> None:
    with pytest.raises(Unavailable):
        await world.owner.act(session, word)


async def test_the_last_approval(new_world: NewWorld) -> None:
    async with new_world(holders=("city", "harbour")) as world:
        with unheard(world, "session.agreed") as lost:
            session = await world.submit()
            await world.completed(session)
        assert lost, "it happened"


@contextmanager
def looked_for_and_lost(world: World, kind: str) -> Iterator[list[str]]:
    """While the first commit of a `kind` of fact is being written, somebody looks for sessions that can run; then it fails."""
    app, loop, append, done = world["orchestrator"].app, asyncio.get_running_loop(), Journal.append, list[str]()
    assert app is not None
    supervisor = app.state.orchestrator.supervisor

    def appended(
        journal: Journal, connection: Connection, stream: str, facts: Sequence[NewFact], **options: Any
    ) -> Any:
        if not done and any(fact.kind == kind for fact in facts):
            done.append(stream)
            asyncio.run_coroutine_threadsafe(supervisor.look(), loop).result(PATIENCE_S)
            raise GONE
        return append(journal, connection, stream, facts, **options)

    with patch.object(Journal, "append", appended):
        yield done


async def test_an_agreement_that_is_lost_after_somebody_saw_it(new_world: NewWorld) -> None:
    """A session that was begun upon it found too few holders in its journal, and failed for good."""
    async with new_world(holders=("city", "harbour")) as world:
        with looked_for_and_lost(world, "session.agreed") as lost:
            session = await world.submit()
            await world.completed(session)
        assert lost == [session]


@contextmanager
def said_and_lost(world: World, kind: str, word: str) -> Iterator[list[asyncio.Task[None]]]:
    """While the first commit of a `kind` of fact is being written an owner says `word`; then it fails. Lists what came of the word."""
    app, loop, append, said = world["orchestrator"].app, asyncio.get_running_loop(), Journal.append, []
    assert app is not None
    house = app.state.orchestrator

    async def say(session: str) -> None:
        book = await house.catalogue.open(session)
        said.append(asyncio.ensure_future(getattr(house.supervisor, word)(book, "owner")))
        for _ in range(3):
            await asyncio.sleep(0)

    def appended(
        journal: Journal, connection: Connection, stream: str, facts: Sequence[NewFact], **options: Any
    ) -> Any:
        if not said and any(fact.kind == kind for fact in facts):
            asyncio.run_coroutine_threadsafe(say(stream), loop).result(PATIENCE_S)
            raise GONE
        return append(journal, connection, stream, facts, **options)

    with patch.object(Journal, "append", appended):
        yield said


@pytest.mark.parametrize("word", ["cancel", "pause", "resume"])
async def test_nobody_is_refused_for_an_end_that_is_lost(word: str, new_world: NewWorld) -> None:
    """Whoever heard that the session had ended would not have said it again, and the session went on."""
    async with new_world(holders=("city", "harbour")) as world:
        with said_and_lost(world, "session.completed", word) as said:
            session = await world.submit()
            await world.completed(session)
        assert len(said) == 1
        with pytest.raises(Unavailable):
            await said[0]


async def test_an_owners_word_to_go_on(new_world: NewWorld) -> None:
    async with new_world(holders=("city", "harbour")) as world:
        session = await world.submit()
        await world.until(session, lambda view: view["phase"] == "RUNNING")
        await world.owner.act(session, "pause")
        await world.until(session, lambda view: view["phase"] == "PAUSED")
        with unheard(world, "session.resumed") as lost:
            await _refused(world, session, "resume")
            await world.completed(session)
        assert lost


@pytest.mark.parametrize(("word", "kind"), [("pause", "session.pause_asked"), ("cancel", "session.cancel_asked")])
async def test_an_owners_word_to_a_running_session(word: str, kind: str, new_world: NewWorld) -> None:
    async with new_world(holders=("city", "harbour")) as world:
        session = await world.submit(rounds=1000)  # it cannot end by itself meanwhile
        await world.until(session, lambda view: view["phase"] == "RUNNING" and view["visits_closed"])
        with unheard(world, kind) as lost:
            await _refused(world, session, word)
            phase = {"pause": "PAUSED", "cancel": "CANCELLED"}[word]
            await world.until(session, lambda view: view["phase"] == phase)
        assert lost


async def test_the_end_of_a_session_that_waits(new_world: NewWorld) -> None:
    """It has the GPU's lease no longer, and its holders hear of its end."""
    async with new_world(holders=("city", "harbour"), approve="manual") as world:
        session = await world.submit()
        await world.operator("city").request(session)
        with unheard(world, "session.cancelled") as lost:
            await _refused(world, session, "cancel")
        assert lost
        deadline = time.monotonic() + PATIENCE_S
        while (await world.operator("city").get(f"requests/{session}"))["state"] != "ended":
            assert time.monotonic() < deadline, "nobody told the holder"
            await asyncio.sleep(0.02)
