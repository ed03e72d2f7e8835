"""What an owner was told would happen (202) happens, whatever dies in between; cancelling works in every phase."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from shared.errors import GputError
from tests.world.world import World
from tests.world.world_faults import Point, Trap
from tests.world.world_wire import Call, Deliver

ORCH, A, P, CITY, HARBOUR = "orchestrator", "agent", "platform", "holder-city", "holder-harbour"
COMMANDS = "/commands"


async def _asked_then_killed(world: World, word: str) -> str:
    """The owner's word is accepted while a holder provisions; the orchestrator dies before the visit's end."""
    session = ""

    async def act() -> None:
        view = await world.owner.act(session, word)
        assert view["phase"] == "RUNNING", "accepted, and not come true yet"
        await world[ORCH].kill()
        await world[ORCH].start()

    trap = Trap(world, Point(HARBOUR, A, "/copy", "before", 1), act)
    session = await world.submit()
    await trap.done()
    return session


async def test_an_accepted_pause_outlives_a_kill(new_world: Any, recorded: Any) -> None:
    async with new_world() as world:
        session = await _asked_then_killed(world, "pause")
        paused = await world.until(session, lambda view: view["phase"] == "PAUSED")
        assert paused["visits_closed"] < paused["visits_total"]
        assert paused["waiting_for"] == ["owner (paused)"]
        await world.owner.act(session, "resume")
        done = await world.completed(session)
        assert done["model"]["digest"] == recorded.view["model"]["digest"]


async def test_an_accepted_cancel_outlives_a_kill(new_world: Any) -> None:
    async with new_world() as world:
        session = await _asked_then_killed(world, "cancel")
        ended = await world.finish(session)
        assert ended["phase"] == "CANCELLED"
        assert ended["current_visit"] is None
        assert {visit["outcome"] for visit in await world.visits(session)} <= {"closed", "recalled"}  # each has one
        following = await world.owner.submit(world.material.manifest(name="after"))
        assert (await world.completed(following["id"]))["phase"] == "COMPLETED"


async def test_a_pause_taken_back_does_not_come_after_a_kill(new_world: Any) -> None:
    async with new_world() as world:
        session = ""

        async def act() -> None:
            await world.owner.act(session, "pause")
            await world.owner.act(session, "resume")
            await world[ORCH].kill()
            await world[ORCH].start()

        trap = Trap(world, Point(HARBOUR, A, "/copy", "before", 1), act)
        session = await world.submit()
        await trap.done()
        await world.completed(session)


MOMENTS = [
    Point(ORCH, P, "/mux", "before", 1),
    Point(ORCH, A, "/spdm", "after", 1),
    Point(ORCH, A, COMMANDS, "after", 1),
    Point(CITY, ORCH, "/channels", "before", 1),
    Point(CITY, A, "/copy", "before", 1),
    Point(CITY, ORCH, "/report", "after", 1),
    Point(ORCH, A, COMMANDS, "after", 9),
]


QUICK = {2, 4}


@pytest.mark.parametrize(
    "point",
    [pytest.param(p, id=str(p), marks=() if n in QUICK else pytest.mark.slow) for n, p in enumerate(MOMENTS)],
)
async def test_cancelled_at_any_moment(point: Point, new_world: Any) -> None:
    async with new_world() as world:
        session, answers = "", []

        async def act() -> None:
            answers.append(await world.owner.act(session, "cancel"))

        trap = Trap(world, point, act)
        session = await world.submit()
        await trap.done()
        ended = await world.finish(session)
        assert ended["phase"] == "CANCELLED"
        assert ended["current_visit"] is None
        with pytest.raises(GputError) as caught:
            await world.owner.act(session, "resume")
        assert caught.value.code == "not-paused"
        following = await world.owner.submit(world.material.manifest(name="after", rounds=1))
        await world.completed(following["id"])  # the GPU was given back


async def test_cancelled_before_approval_and_while_paused(new_world: Any) -> None:
    async with new_world(approve="manual") as world:
        session = await world.submit()
        assert (await world.owner.act(session, "cancel"))["phase"] == "CANCELLED"
    async with new_world("second") as world:
        session = await world.submit()
        await world.until(session, lambda view: view["visits_closed"] >= 1)
        await world.owner.act(session, "pause")
        await world.until(session, lambda view: view["phase"] == "PAUSED")
        await world.owner.act(session, "cancel")
        assert (await world.finish(session))["phase"] == "CANCELLED"


async def test_the_second_session_waits_with_a_reason_and_then_runs(new_world: Any) -> None:
    async with new_world() as world:
        seen = asyncio.Event()

        async def hold(call: Call, deliver: Deliver) -> Any:
            if call.link == (ORCH, P) and b'"holder-' in call.body:
                await seen.wait()
            return await deliver(call)

        world.wire.hooks.append(hold)
        first = await world.submit()
        second = (await world.owner.submit(world.material.manifest(name="second", rounds=1)))["id"]
        waiting = await world.until(second, lambda view: view["phase"] == "READY")
        assert waiting["waiting_for"] == [f"gpu-0 (in use by {first})"]
        seen.set()
        await world.completed(first)
        await world.completed(second)
