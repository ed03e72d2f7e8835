"""While the orchestrator waits for a training, a holder still opens its channel: nobody waits for the GPU's work to end."""

from __future__ import annotations

import asyncio

import httpx2

from tests.world.test_world_repeats import as_party
from tests.world.world import PATIENCE_S, NewWorld
from tests.world.world_recorder import recording
from tests.world.world_recording import Recording
from tests.world.world_wire import Call, Deliver


async def test_a_channel_opens_while_a_poll_is_under_way(new_world: NewWorld, recorded: Recording) -> None:
    polled, opened = asyncio.Event(), asyncio.Event()
    with recording() as recorder:
        async with new_world() as world:

            async def hold(call: Call, deliver: Deliver) -> httpx2.Response:
                answer = await deliver(call)
                polls = any(
                    type(command).__name__ == "Train" for command in recorder.latest_batch
                )  # a poll goes with it
                if call.path.endswith("/ports/orchestrator/commands") and polls and not polled.is_set():
                    polled.set()
                    async with asyncio.timeout(PATIENCE_S):
                        await opened.wait()
                return answer

            world.wire.hooks.append(hold)
            # The channel that is opened by hand is nobody's: its holder is asked again after a lease.
            session = await world.submit(lease_s=3)
            await polled.wait()
            city = as_party(world, "city")
            assert (await city.post_json(f"/v1/sessions/{session}/channels", {"nonce": "ab" * 32}))["channel"]
            opened.set()
            done = await world.completed(session)
    assert done["model"]["digest"] == recorded.view["model"]["digest"]
