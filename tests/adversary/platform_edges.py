"""Writes that a hostile platform holds back, and delivers at any edge of the return: the edges are those of the protocol's own tables.

A visit's and a training phase's tables say which facts follow one another from a holder's report to the visit's close; between two facts
lie the commands that the GPU runs. So a step that somebody adds is an edge by itself. A write is delivered past MUX and lock, as by
hardware that heeds neither. Knows no expected result.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any
from unittest.mock import patch

import httpx2

from gpu_agent.hardware.command_processor import CommandProcessor
from gpu_agent.hardware.state import GpuState
from orchestrator.sessions.book import Book
from shared.errors import GputError
from shared.names import TrainingPhase, VisitPhase
from shared.protocol.machine import Machine
from shared.protocol.training import TRAINING
from shared.protocol.visit import VISIT
from shared.service.journal import NewFact
from shared.wire import gpu
from shared.wire.copy import parse_record
from tests.adversary.platform import COMMANDS, HostilePlatform, record
from tests.adversary.platform_flags import taken
from tests.adversary.platform_power import reset_now
from tests.world.world_wire import Call, Deliver


def way(machine: Machine[Any, Any], start: StrEnum, end: StrEnum) -> list[str]:
    """The facts that lead from one phase to another, the longest way if there are several. Raises: ValueError: none does."""

    def ways(here: StrEnum, passed: tuple[StrEnum, ...]) -> Iterator[list[str]]:
        if here is end:
            yield []
        for (phase, fact), move in machine.moves.items():
            if phase is here and here is not end and move.to not in passed:
                for rest in ways(move.to, (*passed, move.to)):
                    yield [fact.value, *rest]

    return max(ways(start, (start,)), key=len)


RETURN = [
    *(f"visit.{fact}" for fact in way(VISIT, VisitPhase.AWAY, VisitPhase.VERIFIED)),
    *(f"training.{fact}" for fact in way(TRAINING, TrainingPhase.LOADED, TrainingPhase.CLOSED)),
]
"""What is stated of a visit from its report on, in order."""


@dataclass(frozen=True)
class Held:
    """A message that waits. `epoch`: of the key that it was made under; `due`: the only edge at which it is delivered, or any."""

    door: str
    port: str
    epoch: int
    body: bytes
    due: str | None = None


def reset_at_each_fact(platform: HostilePlatform) -> list[str]:
    """The GPU loses all it holds once after each fact of a return, before the next command; the facts that are still to come."""
    left, due, honest = list(RETURN), list[str](), Book.stage

    def stage(book: Book, fact: NewFact, *rows: Any) -> None:
        honest(book, fact, *rows)
        if fact.kind in left and not due:
            left.remove(fact.kind)
            due.append(fact.kind)

    async def hook(call: Call, deliver: Deliver) -> httpx2.Response:
        if due and call.path.endswith(COMMANDS):
            await reset_now(platform)
            due.clear()
        return await deliver(call)

    platform.undo.enter_context(patch.object(Book, "stage", stage))
    platform.hook(hook)
    return left


@dataclass
class LateWrites:
    """`told`: what the GPU answered at each edge. `spent`: epochs whose fence has run, after which nothing may be taken."""

    platform: HostilePlatform
    told: defaultdict[str, Counter[str]] = field(default_factory=lambda: defaultdict(Counter))
    taken_late: list[tuple[str, Held]] = field(default_factory=list)
    held: list[Held] = field(default_factory=list)
    due: list[str] = field(default_factory=list)
    spent: set[int] = field(default_factory=set)
    _spare: bool = True

    def arm(self) -> None:
        """From here on every record is kept, and delivered again at each edge of its visit's return and of what follows."""
        honest_run, honest_stage, late = CommandProcessor._run, Book.stage, self

        def run(processor: CommandProcessor, command: Any, bulk: Any) -> Any:
            late.at(f"before {command.op}", processor._state)
            answer = honest_run(processor, command, bulk)
            if isinstance(command, gpu.OpenEpoch):
                late.spent |= set(command.kills)
            late.at(f"after {command.op}", processor._state)
            return answer

        def stage(book: Book, fact: NewFact, *rows: Any) -> None:
            honest_stage(book, fact, *rows)
            device = late.platform.gpu.device
            with device._lock:
                late.at(fact.kind, device._state)

        self.platform.undo.enter_context(patch.object(CommandProcessor, "_run", run))
        self.platform.undo.enter_context(patch.object(Book, "stage", stage))
        self.platform.hook(self._keep)

    def hold_back(self, edges: list[str]) -> None:
        """Besides, for each of these edges one visit's closing record: it does not arrive, its holder is told that it did, and there it
        comes. A visit that is repeated is left alone."""
        self.due = list(edges)
        self.platform.draw.shuffle(self.due)

    async def _keep(self, call: Call, deliver: Deliver) -> httpx2.Response:
        if not record(call):
            return await deliver(call)
        header, _, _ = parse_record(call.body)
        door, port = call.path.rpartition("/")[2], call.path.split("/ports/")[1].split("/")[0]
        if header.index == header.total:
            self._spare = not self._spare
            if self.due and not self._spare:
                self.held.append(Held(door, port, header.epoch, call.body, self.due.pop()))
                return taken(call)
        answer = await deliver(call)
        if answer.is_success:
            self.held.append(Held(door, port, header.epoch, call.body))
        return answer

    def at(self, edge: str, state: GpuState) -> None:
        """Deliver what is held, at this edge. The device's lock is held by whoever calls."""
        latest = sorted({held.epoch for held in self.held})[-2:]  # one may be loaded ahead
        for held in list(self.held):
            ready = (
                held.door != "commands" or held.epoch in self.spent
            )  # before, it would be obeyed, and that is another attack
            if held.due == edge or (held.due is None and held.epoch in latest and ready):
                self._deliver(edge, held, state)

    def _deliver(self, edge: str, held: Held, state: GpuState) -> None:
        doors = {"copy": state.copies.copy, "staging": state.copies.stage}
        self.platform.done += 1
        try:
            if held.door == "commands":
                self.platform.gpu.device._stock.frame(held.port, held.body, state.clock())
            else:
                doors[held.door](held.port, held.body, state.clock())
        except GputError as error:
            code = error.code
        else:
            code = "accepted"
            if held.epoch in self.spent:
                self.taken_late.append((edge, held))
        self.told[edge][code] += 1
        if held.due is not None:
            self.held.remove(held)
            self._spare = self._spare or code == "accepted"  # then nothing is repeated
