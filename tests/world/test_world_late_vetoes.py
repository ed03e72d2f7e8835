"""A veto that comes after the holder's report and before the fence: its records are trained on no more, in any travel mode."""

from __future__ import annotations

import asyncio

import httpx2
import pytest

from shared.names import TravelMode
from tests.world.test_world_crashes import COMMANDS, ORCH, A
from tests.world.world import NewWorld
from tests.world.world_wire import Call, Deliver

HARBOUR = "holder-harbour"


@pytest.mark.parametrize("mode", TravelMode)
async def test_a_veto_outweighs_the_report_before_it(mode: TravelMode, new_world: NewWorld) -> None:
    """`direct`: the report is of a visit that was loaded ahead, and waits while the GPU trains on another's records."""
    async with new_world() as world:
        reporting, reported, vetoed = False, asyncio.Event(), False

        async def veto(call: Call, deliver: Deliver) -> httpx2.Response:
            nonlocal reporting, vetoed
            # The fence may set out while the report's answer is still on its way: no command passes before the veto.
            if reporting and not vetoed and call.link == (ORCH, A) and call.path.endswith(COMMANDS):
                vetoed = True
                await reported.wait()
                await world.operator("harbour").decide(session, "veto")
            if call.link != (HARBOUR, ORCH) or not call.path.endswith("/report"):
                return await deliver(call)
            reporting = True
            answer = await deliver(call)
            reported.set()
            return answer

        world.wire.hooks.append(veto)
        session = await world.submit(travel_mode=mode, quorum=2)
        view = await world.completed(session)
        assert vetoed
        visits = await world.visits(session)
    assert [v["outcome"] for v in visits if v["holder"] == "harbour"] == ["recalled"], [v["reason"] for v in visits]
    assert view["step"] == 4 * 3
