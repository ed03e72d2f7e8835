"""A hostile platform round a world: it owns every link, the MUX and the GPU's power. Seeded, so that what it did can be done again.

Its building blocks stand in rooms of their own: links (`platform_links`), MUX and power (`platform_power`), completion flags
(`platform_flags`), writes held back to any edge (`platform_edges`); `platform_blocks` is their table. Here is what they share: the seed,
the count of what was done, what the GPU said to it. Knows no expected result.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from types import TracebackType
from typing import Any, Self

import httpx2

from gpu_agent.unit import GpuUnit
from shared.names import TravelMode
from tests.laws.wire_acts import Disturb, How
from tests.world.world import World, url
from tests.world.world_faults import Point
from tests.world.world_recorder import Recorder
from tests.world.world_search import disguises, leaks
from tests.world.world_wire import Call, Deliver, Hook, Link, cut, lose_answer

DOORS = ("/copy", "/staging")
"""Where records come to a port."""
COMMANDS = "/ports/orchestrator/commands"


@dataclass(frozen=True)
class DisturbStaging(Disturb):
    """The same of what a holder leaves in staging."""

    def point(self) -> Point:
        return replace(super().point(), part="/staging")


@dataclass
class Reach:
    """What an act of the laws needs of its stage."""

    world: World
    witness: Recorder


@dataclass
class HostilePlatform:
    """`done` counts what was really done: an attack that never happened proves nothing. `told`: what it was answered, by code.

    `draw` makes every choice, from `seed` alone. `unit` is the GPU under its hand. A context: at its end MUX and GPU are as before.
    """

    world: World
    mode: TravelMode
    recorder: Recorder
    unit: GpuUnit | None = None
    seed: int = 0
    done: int = 0
    told: Counter[str] = field(default_factory=Counter)
    undo: ExitStack = field(default_factory=ExitStack, repr=False)
    _seen: set[bytes] = field(default_factory=set, repr=False)

    def __post_init__(self) -> None:
        self.draw = random.Random(self.seed)  # a repeatable test, not a secret

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.undo.close()

    @property
    def gpu(self) -> GpuUnit:
        """The GPU under its hand."""
        assert self.unit is not None, "this platform was given no GPU"
        return self.unit

    def hook(self, hook: Hook) -> None:
        """Stand on every link."""
        self.world.wire.hooks.append(hook)

    async def say(self, call: Call, deliver: Deliver) -> httpx2.Response:
        """Send a message of its own making, and count it and its answer."""
        self.done += 1
        answer = await deliver(call)
        self.told[told(answer)] += 1
        return answer

    # ------------------------------------------------------------ on links

    async def disturb_records(self, how: How) -> None:
        """Do something to one of the records that holders send: flip, repeat, replay, hold back, cut, lose the answer."""
        kind = DisturbStaging if self.mode is TravelMode.DIRECT else Disturb
        reach: Any = Reach(self.world, self.recorder)
        act = kind("copy", self.draw.randrange(2, 7), how, self.draw.randrange(1 << 16))
        await act.do(reach)
        disturbed, point, seen = self.world.wire.hooks.pop(), act.point(), 0

        async def counted(call: Call, deliver: Deliver) -> httpx2.Response:
            nonlocal seen
            if point.matches(call, None):
                seen += 1
                self.done += seen == act.nth
            return await disturbed(call, deliver)

        self.hook(counted)

    def drop_each_once(self, part: str, *, answer: bool = False) -> None:
        """Every different message with `part` in its path is lost the first time that it is sent (or its answer is)."""

        async def hook(call: Call, deliver: Deliver) -> httpx2.Response:
            if part not in call.path or call.body in self._seen:
                return await deliver(call)
            self._seen.add(call.body)
            self.done += 1
            return await lose_answer(call, deliver) if answer else cut(call)

        self.hook(hook)

    @contextmanager
    def starving(self) -> Iterator[None]:
        """Nothing goes through between services inside the block."""

        async def hook(call: Call, deliver: Deliver) -> httpx2.Response:
            if call.client in ("owner", "operator"):
                return await deliver(call)
            self.done += 1
            return cut(call)

        self.hook(hook)
        try:
            yield
        finally:
            self.world.wire.hooks.remove(hook)

    # ------------------------------------------------------------ what it sees

    def snooped(self, canaries: Iterable[bytes]) -> list[bytes]:
        """Windows of records that it has seen on any link, or on any disk."""
        needles = [window for canary in canaries for window in disguises(canary)]
        return leaks([*self.world.wire.bodies(), *self.world.files()], needles)

    async def look_everywhere(self, service: str) -> bytes:
        """What every GET that a service documents answers to a stranger, one after another."""
        app = self.world[service].app
        assert app is not None
        link, seen = Link(self.world.wire, "platform-itself", service), []
        async with httpx2.AsyncClient(transport=link, base_url=url(service)) as client:
            for path, verbs in app.openapi()["paths"].items():
                if "get" in verbs:
                    self.done += 1
                    seen.append((await client.get(path.replace("{gpu}", "gpu-0").replace("{gpu_id}", "gpu-0"))).content)
        return b"\n".join(seen)


def told(answer: httpx2.Response) -> str:
    """The code of a refusal; "accepted" where it is none."""
    return "accepted" if answer.is_success else str(answer.json()["code"])


def record(call: Call) -> bool:
    """Whether a holder brings a record to its port."""
    return call.server == "agent" and call.path.endswith(DOORS)


def elsewhere(call: Call, port: str) -> Call:
    """The same message on another port."""
    own = call.path.split("/ports/")[1].split("/")[0]
    here, there = f"/ports/{own}/", f"/ports/{port}/"
    return replace(call, path=call.path.replace(here, there), url=call.url.replace(here, there)).at_once()
