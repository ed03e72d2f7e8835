"""Kill and restart anything at any step: the session goes on to the very model of an undisturbed run, and no key is used twice."""

from __future__ import annotations

import asyncio

import pytest

from tests.adversary.rows import attack
from tests.world.world import NewWorld, World
from tests.world.world_faults import Point, Trap, crash
from tests.world.world_material import Material
from tests.world.world_recorder import recording
from tests.world.world_recording import Recording
from tests.world.world_search import disguises, leaks

ORCH, A, P = "orchestrator", "agent", "platform"
CITY = "holder-city"
COMMANDS = "/ports/orchestrator/commands"

# Where the orchestrator dies: each edge of design 4.3 that leaves the house, before the peer hears of it and after it has answered.
ORCHESTRATOR_POINTS = [
    Point(ORCH, A, "/spdm", "before"),
    Point(ORCH, A, "/spdm", "after", 5),
    Point(ORCH, A, COMMANDS, "after", command="InitSession"),
    Point(ORCH, A, COMMANDS, "after", command="SetReady"),
    Point(CITY, ORCH, "/channels", "after"),
    Point(ORCH, A, COMMANDS, "before", command="InstallGrant"),
    Point(ORCH, A, COMMANDS, "after", 2, command="InstallGrant"),
    Point(ORCH, P, "/mux", "before", 3),
    Point(ORCH, P, "/mux", "after", 4),
    Point(CITY, A, "/copy", "before"),
    Point(CITY, A, "/copy", "after", 2),
    Point(CITY, ORCH, "/report", "before"),
    Point(CITY, ORCH, "/report", "after"),
    Point(ORCH, A, COMMANDS, "before", command="Measure"),
    Point(ORCH, A, COMMANDS, "after", 3, command="Measure"),
    Point(ORCH, A, COMMANDS, "before", 2, command="Train"),
    Point(ORCH, A, COMMANDS, "after", 2, command="Train"),
    Point(ORCH, A, COMMANDS, "after", 2, command="Evaluate"),
    Point(ORCH, A, COMMANDS, "before", 2, command="Commit"),
    Point(ORCH, A, COMMANDS, "after", 2, command="Commit"),
    Point(ORCH, A, COMMANDS, "after", 6, command="Commit"),
    Point(ORCH, A, COMMANDS, "after", command="Checkpoint"),
    Point(ORCH, A, COMMANDS, "after", command="Export"),
    Point(ORCH, A, COMMANDS, "before", command="EndSession"),
]
QUICK = {5, 10, 16, 19}


def _marked(points: list[Point], quick: set[int]) -> list[object]:
    return [
        pytest.param(point, id=str(point), marks=() if i in quick else pytest.mark.slow)
        for i, point in enumerate(points)
    ]


async def _same_end(world: World, session: str, recorded: Recording, restored: bool = False) -> None:
    view = await world.completed(session)
    assert view["model"]["digest"] == recorded.view["model"]["digest"]
    assert view["model"]["sha256"] == recorded.view["model"]["sha256"]
    # A visit closed after the last sealed checkpoint is closed a second time by a GPU that was wiped.
    closed = [v["index"] for v in await world.visits(session) if v["outcome"] == "closed"]
    assert set(closed) == {v["index"] for v in recorded.visits}
    assert restored or len(closed) == len(set(closed)), "each visit takes effect once"


async def _nothing_leaked(world: World, material: Material) -> None:
    places = [*world.wire.bodies(), *world.files()]
    for canary in material.canaries.values():
        assert leaks(places, disguises(canary)) == []


@attack("V19", scoped="stopped: facts before acts; the visit is repeated")
@pytest.mark.parametrize("point", _marked(ORCHESTRATOR_POINTS, QUICK))
async def test_orchestrator_killed(point: Point, new_world: NewWorld, recorded: Recording, material: Material) -> None:
    with recording() as recorder:
        async with new_world() as world:
            trap = Trap(world, point, crash(world, ORCH), recorder)
            session = await world.submit()
            await trap.done()
            await _same_end(world, session, recorded)
            await _nothing_leaked(world, material)
    assert recorder.reused == []


HOLDER_POINTS = [
    Point(CITY, ORCH, "/approvals", "after"),
    Point(CITY, ORCH, "/channels", "after"),
    Point(CITY, A, "/copy", "before"),
    Point(CITY, A, "/copy", "after"),
    Point(CITY, A, "/copy", "after", 2),
    Point(CITY, ORCH, "/report", "before"),
    Point(CITY, ORCH, "/report", "after"),
    Point(ORCH, A, COMMANDS, "before", 2, command="Train"),
]


@pytest.mark.parametrize("point", _marked(HOLDER_POINTS, {3, 5}))
async def test_holder_killed(point: Point, new_world: NewWorld, recorded: Recording, material: Material) -> None:
    with recording() as recorder:
        async with new_world() as world:
            trap = Trap(world, point, crash(world, CITY), recorder)
            session = await world.submit()
            await trap.done()
            await _same_end(world, session, recorded)
            await _nothing_leaked(world, material)
    assert recorder.reused == []


@attack("V10", scoped="stopped: boot counter, sealed checkpoint")
@pytest.mark.parametrize("moment", [2, pytest.param(5, marks=pytest.mark.slow)])
async def test_gpu_wiped_in_mid_session_is_restored(moment: int, new_world: NewWorld, recorded: Recording) -> None:
    async with new_world(own_gpu=True) as world:
        point = Point(ORCH, A, COMMANDS, "after", moment, command="Train")
        with recording() as recorder:
            trap = Trap(world, point, crash(world, A), recorder)
            session = await world.submit()
            await trap.done()
            await _same_end(world, session, recorded, restored=True)
        assert any("restored" in event for event in await world.events(session)), "a restore is a leaf of the log"
        assert recorder.reused == []


async def test_everything_killed_at_once(new_world: NewWorld, recorded: Recording) -> None:
    async with new_world() as world:

        async def blackout() -> None:
            names = [ORCH, P, *(f"holder-{name}" for name in world.holders)]
            await asyncio.gather(*(world[name].kill() for name in names))
            for name in (P, ORCH, *names[2:]):
                await world[name].start()

        with recording() as recorder:
            trap = Trap(world, Point(CITY, A, "/copy", "after", 3), blackout, recorder)
            session = await world.submit()
            await trap.done()
            await _same_end(world, session, recorded)
        assert recorder.reused == []


async def test_stopped_cleanly_and_started_again(new_world: NewWorld, recorded: Recording) -> None:
    async with new_world() as world:
        session = await world.submit()
        await world.until(session, lambda view: view["visits_closed"] >= 2)
        await world[ORCH].restart()
        await _same_end(world, session, recorded)


async def test_paused_and_resumed(new_world: NewWorld, recorded: Recording) -> None:
    async with new_world() as world:
        session = await world.submit()
        await world.until(session, lambda view: view["visits_closed"] >= 1)
        await world.owner.act(session, "pause")
        paused = await world.until(session, lambda view: view["phase"] == "PAUSED")
        assert paused["waiting_for"] == ["owner (paused)"]
        closed = paused["visits_closed"]
        await asyncio.sleep(0.3)
        assert (await world.owner.session(session))["visits_closed"] == closed
        await world.owner.act(session, "resume")
        await _same_end(world, session, recorded)


async def test_paused_restarted_and_resumed(new_world: NewWorld, recorded: Recording) -> None:
    async with new_world() as world:
        session = await world.submit()
        await world.until(session, lambda view: view["visits_closed"] >= 1)
        await world.owner.act(session, "pause")
        await world.until(session, lambda view: view["phase"] == "PAUSED")
        await world[ORCH].kill()
        await world[ORCH].start()
        assert (await world.owner.session(session))["phase"] == "PAUSED", "what was shown was durable"
        await world.owner.act(session, "resume")
        await _same_end(world, session, recorded)


async def test_twice_in_a_row(new_world: NewWorld, recorded: Recording) -> None:
    """A second crash while the first is still being recovered from."""
    async with new_world() as world:
        with recording() as recorder:
            first = Trap(world, Point(CITY, ORCH, "/report", "before"), crash(world, ORCH), recorder)
            session = await world.submit()
            await first.done()
            second = Trap(world, Point(ORCH, A, "/spdm", "after", 4), crash(world, ORCH), recorder)
            await second.done()
            await _same_end(world, session, recorded)
        assert recorder.reused == []
