"""Faults at chosen moments of a world: kill and restart a service, cut a call, at the n-th occurrence of something. Knows no test."""

from __future__ import annotations

import asyncio
import contextvars
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any, Literal

import httpx2

from tests.world.world import PATIENCE_S, World
from tests.world.world_recorder import Recorder
from tests.world.world_wire import Call, Deliver

Moment = Literal["before", "after"]


@dataclass(frozen=True)
class Point:
    """The `count`-th call from `client` to `server` with `part` in its path (and this GPU command in its batch), before or after.

    `client` is a name or the beginning of one: "holder" is every holder.
    """

    client: str
    server: str
    part: str
    moment: Moment
    count: int = 1
    command: str = ""

    def matches(self, call: Call, recorder: Recorder | None) -> bool:
        """Whether it is such a call, whichever in number. Commands are only known to a recorder: the wire shows ciphertext."""
        if not call.client.startswith(self.client) or call.server != self.server or self.part not in call.path:
            return False
        if self.command:
            assert recorder is not None, f"{self} names a command, which only a recorder can see"
            return any(type(command).__name__ == self.command for command in recorder.latest_batch)
        return True

    def __str__(self) -> str:
        what = self.command or self.part.strip("/").split("/")[-1]
        return f"{self.moment}-{what}-{self.client}-to-{self.server}-{self.count}"


class Trap:
    """Springs once at a point: `act` runs in a task of its own, outside every service."""

    def __init__(
        self, world: World, point: Point, act: Callable[[], Awaitable[None]], recorder: Recorder | None = None
    ) -> None:
        self._world, self._point, self._act, self._recorder = world, point, act, recorder
        self._seen = 0
        self._outside = contextvars.copy_context()
        self.task: asyncio.Task[None] | None = None
        world.wire.hooks.append(self._hook)

    @property
    def sprung(self) -> bool:
        return self.task is not None

    async def done(self, seconds: float = PATIENCE_S) -> None:
        """The act is over; what it raised is raised."""
        for _ in range(int(seconds / 0.01)):
            if self.task is not None:
                async with asyncio.timeout(seconds):
                    await asyncio.shield(self.task)
                return
            await asyncio.sleep(0.01)
        raise AssertionError(f"the point {self._point} was never reached")

    async def _hook(self, call: Call, deliver: Deliver) -> httpx2.Response:
        if self.sprung or not self._point.matches(call, self._recorder):
            return await deliver(call)
        self._seen += 1
        if self._seen < self._point.count:
            return await deliver(call)
        answer = await deliver(call) if self._point.moment == "after" else None
        self._spring()
        await asyncio.sleep(0.05)  # the victim of a kill never comes back from here
        if answer is None:
            raise httpx2.ConnectError("the peer died")
        return answer

    def _spring(self) -> None:
        loop = asyncio.get_running_loop()
        self.task = loop.create_task(_run(self._act), context=self._outside.copy())


async def _run(act: Callable[[], Awaitable[Any]]) -> None:
    await act()


def crash(world: World, service: str, pause_s: float = 0.0) -> Callable[[], Awaitable[None]]:
    """Kill a service and start it over the same files."""

    async def act() -> None:
        await world[service].kill()
        await asyncio.sleep(pause_s)
        await world[service].start()

    return act
