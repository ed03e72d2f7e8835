"""What can be done to a session, each act a value with a readable name: here crashes, and the words of its parties.

A schedule is a list of acts; hypothesis chooses and shrinks it. Knows how to do each; no law.
"""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, Literal, Protocol, TypeVar

import httpx2

from gpu_agent.unit import GpuUnit
from shared.errors import GputError
from tests.laws.witness import Witness
from tests.world.world import ENDED, World
from tests.world.world_faults import Moment, Point, Trap

T = TypeVar("T")

ORCH, AGENT, PLATFORM, HOLDER = "orchestrator", "agent", "platform", "holder"
COMMANDS = "/ports/orchestrator/commands"
PLACES = {
    "copy": (HOLDER, AGENT, "/copy", "", 16),
    "report": (HOLDER, ORCH, "/report", "", 4),
    "channel": (HOLDER, ORCH, "/channels", "", 4),
    "approval": (HOLDER, ORCH, "/approvals", "", 2),
    "inbox": (HOLDER, ORCH, "/inbox", "", 12),
    "quote": ("", PLATFORM, "/cvms", "", 4),
    "switch": (ORCH, PLATFORM, "/mux", "", 9),
    "mux": (PLATFORM, AGENT, "/mux", "", 9),
    "spdm": (ORCH, AGENT, "/spdm", "", 10),
    "setup": (ORCH, AGENT, COMMANDS, "Configure", 1),
    "grant": (ORCH, AGENT, COMMANDS, "InstallGrant", 4),
    "fence": (ORCH, AGENT, COMMANDS, "Drain", 4),
    "train": (ORCH, AGENT, COMMANDS, "Train", 4),
    "validate": (ORCH, AGENT, COMMANDS, "Evaluate", 3),
    "commit": (ORCH, AGENT, COMMANDS, "Commit", 4),
    "checkpoint": (ORCH, AGENT, COMMANDS, "Checkpoint", 2),
    "export": (ORCH, AGENT, COMMANDS, "Export", 2),
    "end": (ORCH, AGENT, COMMANDS, "EndSession", 1),
}
"""Kinds of messages: client, server, part of the path, GPU command, and how many an undisturbed session has, about."""


def point_at(place: str, nth: int, moment: Moment = "before") -> Point:
    """The `nth` message of a kind from now on."""
    client, server, part, command, _ = PLACES[place]
    return Point(client, server, part, moment, nth, command)


@dataclass
class Stage:
    """What acts work on. `move_clock` moves everybody's clock, the GPU's too."""

    world: World
    unit: GpuUnit
    witness: Witness
    session: str
    move_clock: Callable[[float], None]
    traps: list[Trap] = field(default_factory=list)
    doing: list[asyncio.Task[None]] = field(default_factory=list)
    _busy: dict[str, asyncio.Lock] = field(default_factory=lambda: defaultdict(asyncio.Lock))

    async def view(self) -> Any:
        """The session's view, however often a service is just being restarted."""
        return await _at_last(lambda: self.world.owner.session(self.session))

    async def items(self, of: str) -> list[Any]:
        """All of the session's visits, receipts, and so on, as patiently."""
        return await _at_last(lambda: self.world.owner.items(f"sessions/{self.session}/{of}"))

    async def restart(self, service: str, *, clean: bool = False) -> None:
        """Stop or kill a service and start it over its files; one after another, whoever asks."""
        async with self._busy[service]:
            await (self.world[service].stop() if clean else self.world[service].kill())
            await self.world[service].start()


async def _at_last(ask: Callable[[], Awaitable[T]]) -> T:
    while True:
        with suppress(GputError):
            return await ask()
        await asyncio.sleep(0.01)


class Act(Protocol):
    """`survivable`: the session must complete all the same, with every visit closed and the undisturbed run's model."""

    @property
    def survivable(self) -> bool: ...

    async def do(self, stage: Stage) -> None:
        """Do it, or arm what will. What the system answers to it is its own affair: no refusal is raised from here."""


@dataclass(frozen=True)
class Crash:
    """A service is killed at the `nth` message of a kind, before or after it has its effect, and started again over its files."""

    service: str
    place: str
    nth: int
    moment: Moment

    @property
    def survivable(self) -> bool:
        return True

    async def do(self, stage: Stage) -> None:
        point = point_at(self.place, self.nth, self.moment)
        stage.traps.append(Trap(stage.world, point, lambda: stage.restart(self.service), stage.witness))


@dataclass(frozen=True)
class Restart:
    """A service is stopped cleanly, or killed, now, and started again."""

    service: str
    clean: bool

    @property
    def survivable(self) -> bool:
        return True

    async def do(self, stage: Stage) -> None:
        await stage.restart(self.service, clean=self.clean)


@dataclass(frozen=True)
class Visits:
    """Let some visits be closed, unless the session ends or stands still first."""

    count: int
    patience_s: float = 4.0

    @property
    def survivable(self) -> bool:
        return True

    async def do(self, stage: Stage) -> None:
        goal = (await stage.view())["visits_closed"] + self.count
        with suppress(TimeoutError):
            async with asyncio.timeout(self.patience_s):
                view = await stage.view()
                while view["visits_closed"] < goal and view["phase"] not in (*ENDED, "PAUSED"):
                    await asyncio.sleep(0.01)
                    view = await stage.view()


@dataclass(frozen=True)
class Say:
    """The owner says pause, resume or cancel."""

    word: Literal["pause", "resume", "cancel"]

    @property
    def survivable(self) -> bool:
        return self.word != "cancel"

    async def do(self, stage: Stage) -> None:
        with suppress(GputError):
            await stage.world.owner.act(stage.session, self.word)


@dataclass(frozen=True)
class Veto:
    """A holder's operator withdraws."""

    holder: str

    @property
    def survivable(self) -> bool:
        return False

    async def do(self, stage: Stage) -> None:
        operator = stage.world.operator(self.holder)
        with suppress(httpx2.TransportError):  # its service was just killed
            shown = await operator.request(stage.session)
            await operator.say(f"requests/{stage.session}/veto", {"manifest": shown["manifest"], "reason": "enough"})


@dataclass(frozen=True)
class MoveClock:
    """Everybody's clock jumps ahead: leases, channels and signatures may expire at once."""

    seconds: float

    @property
    def survivable(self) -> bool:
        return True

    async def do(self, stage: Stage) -> None:
        stage.move_clock(self.seconds)
