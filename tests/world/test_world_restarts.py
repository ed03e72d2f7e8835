"""A start asks the holders first: an honest restart costs a message each and changes nothing, whoever is away or dies meanwhile."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import httpx2
import pytest

from gput.receipts import save, verify
from tests.world.world import NewWorld, World
from tests.world.world_faults import Point, Trap, crash
from tests.world.world_recorder import recording
from tests.world.world_recording import Recording
from tests.world.world_wire import Call, Deliver

ORCH, A, P, CITY, HARBOUR = "orchestrator", "agent", "platform", "holder-city", "holder-harbour"
AWAITED = ["head of holder harbour"]


def _acts(world: World) -> int:
    """How often the orchestrator asked anything of GPU and platform, but for evidence and keys of its own."""
    return sum("/cvms/" not in e.call.path for server in (A, P) for e in world.wire.calls(ORCH, server))


async def _same_end(world: World, session: str, recorded: Recording) -> None:
    view = await world.completed(session)
    assert view["model"]["digest"] == recorded.view["model"]["digest"]


async def test_an_honest_restart_is_a_leaf_and_ends_with_the_same_model(
    new_world: NewWorld, recorded: Recording, tmp_path: Path
) -> None:
    async with new_world() as world:
        session = await world.submit()
        await world.until(session, lambda view: view["visits_closed"] >= 2)
        await crash(world, ORCH)()
        await _same_end(world, session, recorded)
        await save(world.owner, session, tmp_path / "receipts", world.folder / "trust")
        assert verify(tmp_path / "receipts").leaves > len(recorded.visits)
        vouched = [event for event in await world.events(session) if "heads_confirmed" in event]
        assert len(vouched) == 1
        assert all(f"'{holder}'" in vouched[0] for holder in world.holders)
        statements = [e for name in world.holders for e in world.wire.calls(f"holder-{name}", ORCH, "/heads")]
        assert [e.status for e in statements] == [202] * 6, "one more message per holder and start"


async def test_a_visit_that_the_next_life_closed_verifies_offline(new_world: NewWorld, tmp_path: Path) -> None:
    """The GPU had committed when the orchestrator died: the receipt is of the old channel's visit, under the new life's key."""
    with recording() as recorder:
        async with new_world() as world:
            point = Point(ORCH, A, "/ports/orchestrator/commands", "after", 2, command="Commit")
            trap = Trap(world, point, crash(world, ORCH), recorder)
            session = await world.submit()
            await trap.done()
            view = await world.completed(session)
            await save(world.owner, session, tmp_path / "receipts", world.folder / "trust")
    assert verify(tmp_path / "receipts").receipts == view["visits_closed"]


async def test_a_holder_that_is_away_at_the_restart_is_waited_for_by_name(
    new_world: NewWorld, recorded: Recording
) -> None:
    async with new_world() as world:
        session = await world.submit()
        await world.until(session, lambda view: view["visits_closed"] >= 2)
        await world[HARBOUR].kill()
        await world[ORCH].kill()
        acts = _acts(world)
        await world[ORCH].start()
        view = await world.until(session, lambda view: view["waiting_for"] == AWAITED)
        assert view["phase"] == "RUNNING"
        [listed] = await world.owner.items("sessions")
        assert listed["waiting_for"] == AWAITED, "a list of many says what the session's page says"
        assert _acts(world) == acts, "the GPU is not touched before the log is known to be whole"
        await world[HARBOUR].start()
        await _same_end(world, session, recorded)


async def test_a_pause_takes_effect_while_a_head_is_awaited(new_world: NewWorld, recorded: Recording) -> None:
    async with new_world() as world:
        session = await world.submit()
        await world.until(session, lambda view: view["visits_closed"] >= 2)
        await world[HARBOUR].kill()
        await world[ORCH].restart()
        await world.until(session, lambda view: view["waiting_for"] == AWAITED)
        await world.owner.act(session, "pause")
        await world.until(session, lambda view: view["phase"] == "PAUSED")
        await world.owner.act(session, "resume")
        await world.until(session, lambda view: view["waiting_for"] == AWAITED)
        await world[HARBOUR].start()
        await _same_end(world, session, recorded)


async def test_an_offer_that_comes_before_a_starting_holders_first_question_is_heard(
    new_world: NewWorld, recorded: Recording
) -> None:
    """It opens its channel before it asks what there is. What was offered in between was told to nobody until the lease had run out."""
    async with new_world() as world:
        died = Trap(world, Point(HARBOUR, A, "/copy", "before"), crash(world, HARBOUR))
        held = list[Any]()

        async def late(call: Call, deliver: Deliver) -> httpx2.Response:
            if (
                not held
                and died.sprung
                and call.link == (HARBOUR, ORCH)
                and (call.path, call.query[:8]) == ("/v1/inbox", "after=0&")
            ):
                held.append(call)
                await world.until(session, _offered_again)
            return await deliver(call)

        world.wire.hooks.append(late)
        session = await world.submit(lease_s=3600)
        view = await world.completed(session)
        assert held
        assert view["model"]["digest"] == recorded.view["model"]["digest"]


def _offered_again(view: Any) -> bool:
    visit = view["current_visit"] or {}
    return [visit.get(name) for name in ("holder", "attempt", "phase")] == ["harbour", 2, "AWAY"]


POINTS = [
    Point(CITY, ORCH, "/heads", "before", 2),
    Point(CITY, ORCH, "/heads", "after", 2),
    Point(HARBOUR, ORCH, "/heads", "after", 1),
]


CASES = [
    pytest.param(point, victim, id=f"{victim}-{point}", marks=() if i + j == 1 else pytest.mark.slow)
    for i, point in enumerate(POINTS)
    for j, victim in enumerate([ORCH, CITY])
]


@pytest.mark.parametrize(("point", "victim"), CASES)
async def test_killed_in_the_middle_of_the_collection(
    point: Point, victim: str, new_world: NewWorld, recorded: Recording
) -> None:
    with recording() as recorder:
        async with new_world() as world:
            trap = Trap(world, point, crash(world, victim), recorder)
            session = await world.submit()
            if point.count == 2:
                await world.until(session, lambda view: view["visits_closed"] >= 2)
                await crash(world, ORCH)()
            await trap.done()
            await _same_end(world, session, recorded)
    assert recorder.reused == []
