"""A session that is paused for longer than the orchestrator allows ends, and its GPU is the next one's; the journal keeps the time."""

from __future__ import annotations

from typing import Any

import pytest

from orchestrator.sessions.views import paused_until
from shared.errors import Conflict
from shared.wire.gpu import EndSession
from tests.world.test_world_doubts import unheard
from tests.world.world import NewWorld, World
from tests.world.world_recorder import Ordered, recording
from tests.world.world_recording import Recording

ORCH = "orchestrator"
LIMIT_S = 60.0
LIMITED = {ORCH: {"pause_limit_s": LIMIT_S}}
AT_ONCE = {ORCH: {"pause_limit_s": 1e-3}}
"""Over as soon as it has begun."""
PAIR = ("city", "harbour")


async def travelling(world: World, **changes: Any) -> str:
    session = await world.submit(**changes)
    await world.until(session, lambda view: view["visits_closed"] >= 1)
    return session


async def paused(world: World, session: str) -> Any:
    await world.owner.act(session, "pause")
    return await world.until(session, lambda view: view["phase"] == "PAUSED")


async def queued(world: World) -> str:
    """Another session, which waits for the GPU."""
    view = await world.owner.submit(world.material.manifest(holders=PAIR, name="next", rounds=1))
    await world.until(view["id"], lambda shown: shown["phase"] == "READY")
    return str(view["id"])


def failed_for_its_pause(view: Any) -> None:
    assert (view["phase"], view["failure"]["code"]) == ("FAILED", "pause-limit")
    assert "pause_limit_s" in view["failure"]["detail"]
    assert f"gput session succeed {view['id']}" in view["failure"]["remedy"]
    assert (view["paused_at"], view["paused_until"], view["waiting_for"]) == (None, None, [])


async def test_the_limit_ends_the_session_and_the_queue_goes_on(new_world: NewWorld) -> None:
    async with new_world(holders=PAIR, settings=AT_ONCE) as world:
        with recording() as recorder:
            first = await travelling(world, rounds=1000)  # it cannot end by itself meanwhile
            second = await queued(world)
            await world.owner.act(first, "pause")
            ended = await world.finish(first)
            failed_for_its_pause(ended)
            assert ended["step"] > 0
            await world.completed(second)
            facts = [event.data["fact"] async for event in world.owner.events(first)]
        assert facts.index("checkpointed") < facts.index("paused") < facts.index("failed"), "sealed before it ends"
        batches = [event.commands for event in recorder.timeline if isinstance(event, Ordered)]
        ends = [number for number, batch in enumerate(batches) if isinstance(batch[-1], EndSession)]
        assert len(ends) == 2, "each session's end wiped the GPU"
        assert recorder.reused == []
        for holder in PAIR:
            await world.operator(holder).request(first, phase="FAILED")


async def test_until_when_is_said_and_resumed_in_time_nothing_is_lost(new_world: NewWorld, recorded: Recording) -> None:
    async with new_world(settings=LIMITED) as world:
        session = await travelling(world)
        view = await paused(world, session)
        assert view["paused_until"] == view["paused_at"] + LIMIT_S
        assert view["created_at"] < view["paused_at"] <= view["updated_at"]
        [listed] = await world.owner.items("sessions")
        assert (listed["paused_at"], listed["paused_until"]) == (view["paused_at"], view["paused_until"])
        world.offset += LIMIT_S / 2
        resumed = await world.owner.act(session, "resume")
        assert (resumed["paused_at"], resumed["paused_until"]) == (None, None)
        world.offset += LIMIT_S  # more than a pause may last, and it is not paused
        again = await paused(world, session)
        assert again["paused_until"] > view["paused_until"] + LIMIT_S / 2, "each pause has the whole time"
        await world.owner.act(session, "resume")
        done = await world.completed(session)
        assert done["model"]["digest"] == recorded.view["model"]["digest"]


async def test_a_restart_neither_forgets_the_pause_nor_begins_it_anew(new_world: NewWorld) -> None:
    async with new_world(holders=PAIR, settings=LIMITED) as world:
        first = await travelling(world, rounds=1000)
        before = await paused(world, first)
        second = await queued(world)
        await world[ORCH].kill()
        world.offset += LIMIT_S / 2
        await world[ORCH].start()
        after = await world.owner.session(first)
        assert (after["phase"], after["paused_until"]) == ("PAUSED", before["paused_until"])
        await world[ORCH].stop()
        world.offset += LIMIT_S / 2
        await world[ORCH].start()
        failed_for_its_pause(await world.finish(first))  # nobody asked anything of it
        await world.completed(second)


async def test_the_end_was_written_down_and_nobody_heard(new_world: NewWorld) -> None:
    async with new_world(holders=PAIR, settings=AT_ONCE) as world:
        first = await travelling(world, rounds=1000)
        second = await queued(world)
        with unheard(world, "session.failed") as lost:
            await world.owner.act(first, "pause")
            failed_for_its_pause(await world.finish(first))
            await world.completed(second)
        assert lost, "it happened"


async def test_who_comes_too_late_is_told_so(new_world: NewWorld) -> None:
    async with new_world(holders=PAIR, settings=AT_ONCE) as world:
        session = await travelling(world, rounds=1000)
        await world.owner.act(session, "pause")
        await world.finish(session)
        for word, code in {"resume": "not-paused", "pause": "not-running", "cancel": "session-ended"}.items():
            with pytest.raises(Conflict) as caught:
                await world.owner.act(session, word)
            assert caught.value.code == code


async def test_without_a_limit_a_pause_may_last(new_world: NewWorld) -> None:
    async with new_world(holders=PAIR, settings={ORCH: {"pause_limit_s": "inf"}}) as world:
        session = await travelling(world)
        view = await paused(world, session)
        assert (view["paused_until"], view["paused_at"] is None) == (None, False)
        await world[ORCH].stop()
        world.offset += 10 * LIMIT_S
        await world[ORCH].start()
        await world.owner.act(session, "resume")
        await world.completed(session)


def test_who_is_not_paused_has_no_time_limit() -> None:
    assert paused_until(None, 5.0) is None
    assert paused_until(7.0, 5.0) == 12.0
