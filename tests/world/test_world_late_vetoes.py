"""A veto that comes after the holder's report and before the fence: its records are trained on no more, in any travel mode."""

from __future__ import annotations

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
        reported = vetoed = False

        async def veto(call: Call, deliver: Deliver) -> httpx2.Response:
            nonlocal reported, vetoed
            if reported and not vetoed and call.link == (ORCH, A) and call.path.endswith(COMMANDS):
                vetoed = True
                await world.operator("harbour").decide(session, "veto")
            answer = await deliver(call)
            reported = reported or (call.link == (HARBOUR, ORCH) and call.path.endswith("/report"))
            return answer

        world.wire.hooks.append(veto)
        session = await world.submit(travel_mode=mode, quorum=2)
        view = await world.completed(session)
        assert vetoed
        visits = await world.visits(session)
    assert [v["outcome"] for v in visits if v["holder"] == "harbour"] == ["recalled"], [v["reason"] for v in visits]
    assert view["step"] == 4 * 3
