"""Death at one moment of a session: of a service by SIGKILL, of the GPU by its power, of the database's process. Knows how; no law.

A commit is watched where facts enter the journal: death before it undoes the whole transaction, as a database does when its client is
gone; death after it comes before anybody hears that it succeeded.
"""

from __future__ import annotations

import asyncio
import contextvars
import os
import signal
from collections import Counter
from collections.abc import Awaitable, Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from unittest.mock import patch

from sqlalchemy import Connection
from sqlalchemy.exc import OperationalError

from data_holder.protocol import state as holder_state
from shared.service.journal import Journal, NewFact
from tests.crash.cells import AGENT, DATABASE, ORCH, Cell
from tests.laws.acts import COMMANDS, PLACES, Stage
from tests.laws.witness import Wiped
from tests.world.world_faults import Point, Trap
from tests.world.world_power import rebooted


def committed_as(service: str, fact: NewFact) -> str:
    """The step that a journal's row stands for."""
    if service == ORCH:
        return fact.kind
    return f"holder.{fact.body['fact']}" if fact.kind == holder_state.VISIT else f"holder.{fact.kind}"


def service_of(connection: Connection) -> str:
    """Whose database this is: each service has its own below its folder; what is on a server belongs to the orchestrator here."""
    if connection.dialect.name != "sqlite":
        return ORCH
    folders = Path(str(connection.engine.url.database)).parts
    return next(part for part in reversed(folders) if part in (ORCH, "platform", AGENT) or part.startswith("holder-"))


@dataclass
class Reaper:
    """Kills at `cell`, at its `nth` occurrence, once. `seen`: how often each step was committed, by service."""

    cell: Cell | None
    nth: int = 1
    seen: Counter[tuple[str, str]] = field(default_factory=Counter)
    trap: Trap | None = None
    task: asyncio.Task[None] | None = None

    def watching(self) -> AbstractContextManager[Any]:
        """Sees every commit inside the block."""
        append = Journal.append

        def watched(
            journal: Journal, connection: Connection, stream: str, facts: Sequence[NewFact], **options: Any
        ) -> Any:
            head = append(journal, connection, stream, facts, **options)
            service = service_of(connection)
            for fact in facts:
                step = committed_as(service, fact)
                self.seen[service, step] += 1
                if self._due(service, step):
                    self._reap(connection)
            return head

        return patch.object(Journal, "append", watched)

    def arm(self, stage: Stage) -> None:
        """From here on the cell's moment is waited for."""
        self._stage, self._loop, self._sprung = stage, asyncio.get_running_loop(), asyncio.Event()
        self._outside = contextvars.copy_context()
        if self.cell is not None and self.cell.kind == "message":
            self.trap = Trap(stage.world, self._point(self.cell), self._death(self.cell.victim), stage.witness)

    async def done(self, seconds: float) -> None:
        """It was reached, and the victim is back. Raises: AssertionError: it never was."""
        if self.trap is not None:
            await self.trap.done(seconds)
            return
        async with asyncio.timeout(seconds):
            await self._sprung.wait()
            assert self.task is not None
            await asyncio.shield(self.task)

    # ---------------------------------------------------------------- commits

    def _due(self, service: str, step: str) -> bool:
        cell = self.cell
        here = cell is not None and cell.kind == "commit" and (service, step) == (cell.actor, cell.step)
        return here and self.seen[service, step] == self.nth

    def _reap(self, connection: Connection) -> None:
        """On the writer's thread, inside the transaction."""
        assert self.cell is not None
        act = self._kill_backend(connection) if self.cell.victim == DATABASE else self._kill_service()
        if self.cell.moment == "before":
            act()
        else:
            self._stage.world[self.cell.actor].incarnation.at_commit = act

    def _kill_backend(self, connection: Connection) -> Callable[[], None]:
        pid = int(connection.exec_driver_sql("SELECT pg_backend_pid()").scalar_one())

        def act() -> None:
            os.kill(pid, signal.SIGKILL)  # the server then drops everybody, and recovers from its log
            self._loop.call_soon_threadsafe(self._spring, _nothing)

        return act

    def _kill_service(self) -> Callable[[], None]:
        assert self.cell is not None
        service, incarnation = self.cell.victim, self._stage.world[self.cell.victim].incarnation

        def act() -> None:
            incarnation.dead = True
            self._loop.call_soon_threadsafe(self._spring, self._death(service))
            if incarnation.at_commit is None:
                raise OperationalError("COMMIT", None, Exception("the client was killed"))

        return act

    def _spring(self, act: Callable[[], Awaitable[None]]) -> None:
        self.task = self._loop.create_task(_run(act), context=self._outside.copy())
        self._sprung.set()

    # --------------------------------------------------------------- messages

    def _point(self, cell: Cell) -> Point:
        if cell.step in PLACES:
            client, server, part, command, _ = PLACES[cell.step]
            return Point(client, server, part, cell.moment, self.nth, command)
        return Point(ORCH, AGENT, COMMANDS, cell.moment, self.nth, cell.step)

    # ----------------------------------------------------------------- deaths

    def _death(self, victim: str) -> Callable[[], Awaitable[None]]:
        return self.power_lost if victim == AGENT else lambda: self._stage.restart(victim)

    async def power_lost(self) -> None:
        """The GPU's machine loses its power: whatever was in GPU memory is gone."""
        stage = self._stage
        await stage.world[AGENT].kill()

        def off_and_on() -> None:
            with stage.unit.device._ordered():
                rebooted(stage.unit.device, stage.unit.device._clock)

        stage.unit.compute.wake()
        await asyncio.to_thread(off_and_on)
        stage.witness.note(Wiped(stage.witness.picture(stage.unit.device._hbm)))
        await stage.world[AGENT].start()


async def _run(act: Callable[[], Awaitable[None]]) -> None:
    await act()


async def _nothing() -> None:
    """The database comes back by itself."""
