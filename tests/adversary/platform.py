"""A hostile platform round a world: it owns every link, the MUX and the GPU's power. Seeded, so that what it did can be done again.

It builds on the acts of the laws (tests/laws/wire_acts.py) and the wire's hooks. Knows what can be done; no expected result.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Any

import httpx2

from gpu_agent.unit import GpuUnit
from shared.names import TravelMode
from tests.laws.wire_acts import Disturb, How
from tests.world.world import World, url
from tests.world.world_faults import Point
from tests.world.world_recorder import Recorder
from tests.world.world_search import disguises, leaks
from tests.world.world_wire import Call, Deliver, Link, cut, lose_answer


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
    """`done` counts what was really done: an attack that never happened proves nothing."""

    world: World
    mode: TravelMode
    recorder: Recorder
    seed: int = 0
    done: int = 0
    _seen: set[bytes] = field(default_factory=set, repr=False)

    async def disturb_records(self, how: How, nth: int) -> None:
        """Do something to the nth record that holders send: flip, repeat, replay, hold back, cut, lose the answer."""
        kind = DisturbStaging if self.mode is TravelMode.DIRECT else Disturb
        reach: Any = Reach(self.world, self.recorder)
        act = kind("copy", nth, how, self.seed)
        await act.do(reach)
        hook = self.world.wire.hooks[-1]
        point = act.point()

        async def counted(call: Call, deliver: Deliver) -> httpx2.Response:
            self.done += point.matches(call, None)
            return await hook(call, deliver)

        self.world.wire.hooks[-1] = counted

    def drop_each_once(self, part: str, *, answer: bool = False) -> None:
        """Every different message with `part` in its path is lost the first time that it is sent (or its answer is)."""

        async def hook(call: Call, deliver: Deliver) -> httpx2.Response:
            if part not in call.path or call.body in self._seen:
                return await deliver(call)
            self._seen.add(call.body)
            self.done += 1
            return await lose_answer(call, deliver) if answer else cut(call)

        self.world.wire.hooks.append(hook)

    @contextmanager
    def starving(self) -> Iterator[None]:
        """Nothing goes through between services inside the block."""

        async def hook(call: Call, deliver: Deliver) -> httpx2.Response:
            if call.client in ("owner", "operator"):
                return await deliver(call)
            self.done += 1
            return cut(call)

        self.world.wire.hooks.append(hook)
        try:
            yield
        finally:
            self.world.wire.hooks.remove(hook)

    def reroute(self, unit: GpuUnit, to: str, times: int) -> None:
        """In mid-visit, just as a record comes, the MUX leads to another machine; and back after it."""

        async def hook(call: Call, deliver: Deliver) -> httpx2.Response:
            if not call.path.endswith("/copy") or self.done >= times:
                return await deliver(call)
            self.done += 1
            bound = unit.mux.bound
            unit.mux.bind(to if bound != to else "holder-nobody")
            try:
                return await deliver(call)
            finally:
                unit.mux.bind(bound)

        self.world.wire.hooks.append(hook)

    def snooped(self, canaries: Iterable[bytes]) -> list[bytes]:
        """Windows of records that it has seen on any link, or on any disk."""
        needles = [window for canary in canaries for window in disguises(canary)]
        return leaks([*self.world.wire.bodies(), *self.world.files()], needles)

    async def look_everywhere(self, service: str) -> bytes:
        """What every GET that a service documents answers to a stranger, one after another."""
        app = self.world[service].app
        assert app is not None
        link, told = Link(self.world.wire, "platform-itself", service), []
        async with httpx2.AsyncClient(transport=link, base_url=url(service)) as client:
            for path, verbs in app.openapi()["paths"].items():
                if "get" in verbs:
                    self.done += 1
                    told.append((await client.get(path.replace("{gpu}", "gpu-0").replace("{gpu_id}", "gpu-0"))).content)
        return b"\n".join(told)
