"""A process dies at any step of a successor's submission and set-up: it begins with its predecessor's model all the same."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Sequence
from typing import Any
from unittest.mock import patch

import pytest
from sqlalchemy import Connection
from sqlalchemy.exc import OperationalError

from shared.errors import Unavailable
from shared.service.journal import Journal, NewFact
from tests.crash.cells import AGENT, ORCH, REFILL
from tests.crash.reaper import service_of
from tests.laws.acts import COMMANDS
from tests.successors.successor_world import CAME, LEFT, NewWorld, Rested, SuccessorWorld
from tests.world.world_faults import Moment, Point, Trap, crash
from tests.world.world_recorder import recording

STEPS = ("session.submitted", "session.agreed", "session.checkpointed", "Restore", "Measure", "Checkpoint", *REFILL)
"""What leads from a successor's manifest to its first visit. `test_every_command_of_set_up_is_died_at` says when one is missing."""
QUICK = {
    ("Restore", ORCH, "after"), ("session.checkpointed", ORCH, "before"), ("session.checkpointed", ORCH, "after"),
    ("Checkpoint", AGENT, "after"),
}  # fmt: skip
CELLS = [
    pytest.param(
        step, victim, moment, id=f"{victim}-{moment}-{step}",
        marks=() if (step, victim, moment) in QUICK else pytest.mark.slow,
    )
    for step in STEPS
    for victim in ((ORCH,) if "." in step else (ORCH, AGENT))
    for moment in ("before", "after")
]  # fmt: skip


def test_every_command_of_set_up_is_died_at(rested: Rested) -> None:
    assert {*rested.commands} == {step for step in STEPS if "." not in step}


@pytest.mark.parametrize(("step", "victim", "moment"), CELLS)
async def test_any_process_may_die_while_a_successor_is_set_up(
    step: str, victim: str, moment: Moment, again: NewWorld, rested: Rested
) -> None:
    with recording() as recorder:
        async with again(own_gpu=victim == AGENT) as world:
            if "." in step:
                with DeathAtCommit(world, step, moment) as died:
                    after = await _submitted(world, rested.session)
                    await died()
                    view = await world.completed(after)
                    assert not await world.has_inherited_key(after), "it has a checkpoint of its own"
            else:
                point = Point(ORCH, AGENT, COMMANDS, moment, command=step)
                trap = Trap(world, point, crash(world, victim), recorder)
                after = await _submitted(world, rested.session)
                await trap.done()
                view = await world.completed(after)
                assert not await world.has_inherited_key(after), "it has a checkpoint of its own"
    assert view["model"]["digest"] == rested.model["digest"]
    assert view["model"]["sha256"] == rested.model["sha256"]
    assert recorder.reused == [], "no key has sealed two things under one IV"


async def _submitted(world: SuccessorWorld, session: str) -> str:
    """As an owner does whose orchestrator may die meanwhile: the same again, under the same key."""
    deadline = time.monotonic() + 60
    while True:
        try:
            manifest = await world.owner.successor(session, replace={LEFT: CAME})
            return str((await world.owner.submit(manifest, idempotency_key="the-one-successor"))["id"])
        except Unavailable:
            if time.monotonic() > deadline:
                raise
        await asyncio.sleep(0.02)


class DeathAtCommit:
    """The orchestrator is killed where this fact enters its journal for the first time: undone, or durable and nobody heard."""

    def __init__(self, world: SuccessorWorld, step: str, moment: Moment) -> None:
        self._world, self._step, self._moment = world, step, moment
        self._reached, self._task = asyncio.Event(), None  # type: asyncio.Event, asyncio.Task[None] | None
        self._loop, self._append, self._due = asyncio.get_running_loop(), Journal.append, True

    def __enter__(self) -> Callable[[], Awaitable[None]]:
        watch = self

        def watched(
            journal: Journal, connection: Connection, stream: str, facts: Sequence[NewFact], **more: Any
        ) -> Any:
            head = watch._append(journal, connection, stream, facts, **more)
            if watch._due and service_of(connection) == ORCH and watch._step in {fact.kind for fact in facts}:
                watch._due = False
                watch._kill()
            return head

        self._patch = patch.object(Journal, "append", watched)
        self._patch.start()
        return self._done

    def __exit__(self, *_: object) -> None:
        self._patch.stop()

    def _kill(self) -> None:
        incarnation = self._world[ORCH].incarnation

        def act() -> None:
            incarnation.dead = True
            self._loop.call_soon_threadsafe(self._spring)

        if self._moment == "after":
            incarnation.at_commit = act
            return
        act()
        raise OperationalError("COMMIT", None, Exception("the client was killed"))

    def _spring(self) -> None:
        self._task = self._loop.create_task(crash(self._world, ORCH)())
        self._reached.set()

    async def _done(self) -> None:
        async with asyncio.timeout(60):
            await self._reached.wait()
            assert self._task is not None
            await self._task
