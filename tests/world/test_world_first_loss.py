"""The held-out loss of the first model: known, or not there at all, wherever the life breaks in which it is measured."""

from __future__ import annotations

import asyncio
import contextvars

import httpx2

from shared.wire.gpu import Evaluate
from tests.world.test_world_crashes import COMMANDS, ORCH, A
from tests.world.test_world_integrity import restarted
from tests.world.world import NewWorld
from tests.world.world_recorder import recording
from tests.world.world_recording import Recording
from tests.world.world_wire import Call, Deliver


async def test_it_is_measured_though_the_life_breaks_while_others_commit(
    new_world: NewWorld, recorded: Recording
) -> None:
    """Whatever is committed meanwhile (here the owner's words) must not make a placement durable that nobody evaluates any more."""
    with recording() as recorder:
        async with new_world() as world:
            broken, outside, task = False, contextvars.copy_context(), None

            async def breaks(call: Call, deliver: Deliver) -> httpx2.Response:
                nonlocal broken, task
                evaluates = any(isinstance(command, Evaluate) for command in recorder.latest_batch)
                if broken or call.link != (ORCH, A) or not call.path.endswith(COMMANDS) or not evaluates:
                    return await deliver(call)
                broken = True
                await world.owner.act(session, "pause")
                await world.owner.act(session, "resume")
                task = asyncio.get_running_loop().create_task(restarted(world), context=outside.copy())
                await asyncio.sleep(0.05)
                raise httpx2.ConnectError("the orchestrator died")

            world.wire.hooks.append(breaks)
            session = await world.submit()
            view = await world.completed(session)
    assert broken
    assert task is not None
    await task
    assert view["validation_loss"] == recorded.view["validation_loss"]
    assert view["validation_loss"]["first"] is not None
    assert view["model"]["digest"] == recorded.view["model"]["digest"]
