"""When a rehearsal's session is over: at its end, at a pause, and at the first refusal, which nobody would ever take back."""

from __future__ import annotations

import asyncio
from typing import Any

from gput.local.rehearsal import ended
from tests.world.world import NewWorld, World


async def over(world: World, session: str) -> tuple[dict[str, Any], dict[str, str]]:
    async with asyncio.timeout(60):  # it would be for ever
        return await ended(world.owner, session)


async def test_a_refusal_ends_it_at_once_with_the_policys_reason(world: World) -> None:
    session = await world.submit(continuation="remaining")
    view, refusals = await over(world, session)
    assert view["phase"] == "AWAITING_APPROVAL", "it goes on waiting: whoever waits for its end waits for ever"
    assert refusals
    assert refusals.keys() <= set(world.holders)
    assert {reason.partition(":")[0] for reason in refusals.values()} == {"session.continuation"}


async def test_a_refusal_that_a_quorum_does_without_is_told_too(new_world: NewWorld) -> None:
    async with new_world(approve="manual") as world:
        session = await world.submit(quorum=2)
        for name in ("city", "north"):
            await world.operator(name).decide(session, "approve", dataset="ehr")
        await world.completed(session)
        view, refusals = await over(world, session)
        assert (view["phase"], refusals) == ("COMPLETED", {})
        again = await world.submit(quorum=2, name="once more")
        await world.operator("harbour").decide(again, "refuse", reason="too few records")
        for name in ("city", "north"):
            await world.operator(name).decide(again, "approve", dataset="ehr")
        view, refusals = await over(world, again)
        assert refusals == {"harbour": "too few records"}


async def test_a_session_that_nobody_refuses_is_over_with_its_end_or_a_pause(world: World) -> None:
    session = await world.submit()
    view, refusals = await over(world, session)
    assert (view["phase"], view["visits_closed"], refusals) == ("COMPLETED", 2 * len(world.holders), {})
    long = await world.submit(rounds=1000)
    await world.until(long, lambda view: view["visits_closed"])
    await world.owner.act(long, "pause")
    view, refusals = await over(world, long)
    assert (view["phase"], refusals) == ("PAUSED", {})
