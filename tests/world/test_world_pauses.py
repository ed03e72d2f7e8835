"""A pause that is asked while something else is away: it waits like everybody else, and comes true when that is back."""

from __future__ import annotations

import time

import httpx2
import pytest

from orchestrator.gpu_session.checkpoints import Checkpoints, Sealed
from orchestrator.gpu_session.life import GpuLife
from shared.errors import Unavailable
from tests.world.world import NewWorld, World
from tests.world.world_wire import Call, Deliver

AWAY_S = 3.0
"""By `PATIENCE_S` lives break at 0, 0.2, 0.7 and 1.7 seconds, and the one after that finds it back."""
LIVES = 6


async def _asked(world: World) -> str:
    """A session that cannot end by itself and has just been told to pause."""
    session = await world.submit(rounds=1000)
    await world.until(session, lambda view: view["visits_closed"] >= 1)
    return session


async def _lives(world: World, session: str) -> int:
    facts = [event.data async for event in world.owner.events(session, after=0) if "fact" in event.data]
    return sum(fact["fact"] == "life_opened" for fact in facts)


async def test_refusals_of_the_agent_are_not_used_up_by_a_pause(new_world: NewWorld) -> None:
    """As behind a proxy that has lost its agent: ten such answers and the session is over, but not within a second."""
    refused = list[float]()

    async def hook(call: Call, deliver: Deliver) -> httpx2.Response:
        if call.link == ("orchestrator", "agent") and (not refused or time.monotonic() - refused[0] < AWAY_S):
            refused.append(time.monotonic())
            return httpx2.Response(404, content=b"no such route")
        return await deliver(call)

    async with new_world(holders=("city",)) as world:
        session = await _asked(world)
        world.wire.hooks.append(hook)
        await world.until(
            session, lambda view: refused
        )  # a pause just behind a visit's own checkpoint would ask the agent nothing
        await world.owner.act(session, "pause")
        await world.until(session, lambda view: view["phase"] == "PAUSED")
        assert len(refused) > 1
        await world.owner.act(session, "cancel")
        await world.finish(session)


async def test_a_full_disk_opens_no_life_after_another(new_world: NewWorld, monkeypatch: pytest.MonkeyPatch) -> None:
    write, full = Checkpoints.write, list[float]()

    async def written(self: Checkpoints, life: GpuLife, name: str, validation: float | None) -> Sealed:
        if not full or time.monotonic() - full[0] < AWAY_S:
            full.append(time.monotonic())
            raise Unavailable("no space left", code="disk-full")
        return await write(self, life, name, validation)

    async with new_world(holders=("city",), settings={"orchestrator": {"checkpoint_share": 1e-9}}) as world:
        session = await _asked(world)
        monkeypatch.setattr(Checkpoints, "write", written)
        await world.owner.act(session, "pause")
        await world.until(session, lambda view: view["phase"] == "PAUSED")
        assert len(full) > 1
        await world.owner.act(session, "cancel")
        await world.finish(session)
        assert await _lives(world, session) <= LIVES
