"""A stranger's handshake between two of the orchestrator's own messages: the GPU wipes itself, the session goes on to the same model."""

from __future__ import annotations

import httpx2
import pytest

from gpu_agent.unit import GpuUnit
from tests.adversary.rows import attack
from tests.laws.attacks import stranger_opens
from tests.world.world import NewWorld, World
from tests.world.world_recorder import recording
from tests.world.world_recording import Recording
from tests.world.world_wire import Call, Deliver

MESSAGES = range(1, 8)
"""GET_VERSION to FINISH; what comes after is a session that stands."""
QUICK = {6}


def intrude(world: World, unit: GpuUnit, nth: int) -> list[int]:
    """Just before the nth SPDM message from here on. The list has an entry once it happened."""
    seen, happened = 0, []

    async def hook(call: Call, deliver: Deliver) -> httpx2.Response:
        nonlocal seen
        if call.path.endswith("/orchestrator/spdm"):
            seen += 1
            if seen == nth:
                await stranger_opens(unit)
                happened.append(nth)
        return await deliver(call)

    world.wire.hooks.append(hook)
    return happened


@attack("V21", scoped="stopped: the GPU wipes itself; the session is restored from its checkpoint")
@pytest.mark.parametrize("nth", [pytest.param(n, marks=() if n in QUICK else pytest.mark.slow) for n in MESSAGES])
async def test_in_the_middle_of_a_resumed_life(
    nth: int, new_world: NewWorld, unit: GpuUnit, recorded: Recording
) -> None:
    with recording() as recorder:
        async with new_world() as world:
            session = await world.submit()
            await world.until(session, lambda view: view["visits_closed"] >= 2)
            await world["orchestrator"].kill()
            happened = intrude(world, unit, nth)
            await world["orchestrator"].start()
            view = await world.completed(session)
            assert happened
            assert view["model"]["digest"] == recorded.view["model"]["digest"]
    assert recorder.reused == []


@pytest.mark.slow
@pytest.mark.parametrize("nth", MESSAGES)
async def test_in_the_middle_of_the_first_life(
    nth: int, new_world: NewWorld, unit: GpuUnit, recorded: Recording
) -> None:
    async with new_world() as world:
        happened = intrude(world, unit, nth)
        session = await world.submit()
        view = await world.completed(session)
        assert happened
        assert view["model"]["digest"] == recorded.view["model"]["digest"]
