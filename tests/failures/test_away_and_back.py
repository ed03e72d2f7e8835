"""Parties that are away for a while, cut off, or whose clocks are wrong: the session says for whom it waits and goes on to the same end."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager

import httpx2
import pytest

from tests.failures.test_running_failures import says
from tests.world.world import NewWorld, World
from tests.world.world_faults import Point, Trap
from tests.world.world_recording import Recording
from tests.world.world_wire import Call, Deliver

AWAY_S = 0.8
"""Longer than the runner's first two waits for a broken life."""


async def _same_end(world: World, session: str, recorded: Recording) -> None:
    done = await world.completed(session)
    assert done["model"]["digest"] == recorded.view["model"]["digest"]


@contextmanager
def cut_off(world: World, *, client: str = "", server: str = "") -> Iterator[list[Call]]:
    """No call of this client, or to this server, arrives; what was tried is in the list."""
    tried: list[Call] = []

    async def hook(call: Call, deliver: Deliver) -> httpx2.Response:
        if (client and call.client != client) or (server and call.server != server):
            return await deliver(call)
        tried.append(call)
        raise httpx2.ConnectError(f"cut: {call.client} to {call.server}")

    world.wire.hooks.append(hook)
    try:
        yield tried
    finally:
        world.wire.hooks.remove(hook)


async def test_a_holder_is_away_before_the_session_begins(new_world: NewWorld, recorded: Recording) -> None:
    async with new_world() as world:
        await world["holder-city"].stop()
        session = await world.submit()
        view = await world.until(session, says("city"))
        assert view["phase"] == "AWAITING_APPROVAL"
        await asyncio.sleep(AWAY_S)
        await world["holder-city"].start()
        await _same_end(world, session, recorded)


async def test_a_holder_is_away_between_approval_and_its_visit(new_world: NewWorld, recorded: Recording) -> None:
    async with new_world() as world:
        session = await world.submit()
        await world.until(session, lambda view: view["phase"] == "RUNNING")
        await world["holder-city"].kill()
        await world.until(session, says("city"))
        await asyncio.sleep(AWAY_S)
        await world["holder-city"].start()
        await _same_end(world, session, recorded)


@pytest.mark.slow
async def test_every_holder_goes_away_and_comes_back(new_world: NewWorld, recorded: Recording) -> None:
    async with new_world() as world:
        session = await world.submit()
        await world.until(session, lambda view: view["visits_closed"] >= 2)
        await asyncio.gather(*(world[f"holder-{name}"].kill() for name in world.holders))
        await world.until(session, lambda view: view["waiting_for"])
        await asyncio.sleep(AWAY_S)
        for name in reversed(world.holders):
            await world[f"holder-{name}"].start()
        await _same_end(world, session, recorded)


@pytest.mark.parametrize("server", [pytest.param("platform", marks=pytest.mark.slow), "agent"])
async def test_a_server_is_cut_off_for_a_while(server: str, new_world: NewWorld, recorded: Recording) -> None:
    async with new_world() as world:
        session = await world.submit()
        await world.until(session, lambda view: view["visits_closed"] >= 1)
        with cut_off(world, server=server) as tried:
            view = await world.until(
                session,
                lambda view: any("unavailable" in w or "unreachable" in w or "peer" in w for w in view["waiting_for"]),
            )
            assert view["phase"] == "RUNNING"
            await asyncio.sleep(AWAY_S)
        assert tried
        await _same_end(world, session, recorded)


@pytest.mark.parametrize("client", ["orchestrator", pytest.param("holder-city", marks=pytest.mark.slow)])
async def test_a_partition_heals(client: str, new_world: NewWorld, recorded: Recording) -> None:
    """One party reaches nobody any more, but is alive."""
    async with new_world() as world:
        session = await world.submit()
        await world.until(session, lambda view: view["visits_closed"] >= 1)
        with cut_off(world, client=client) as tried:
            await asyncio.sleep(2 * AWAY_S)
        assert tried
        await _same_end(world, session, recorded)


@pytest.mark.slow
async def test_the_platform_restarts(new_world: NewWorld, recorded: Recording) -> None:
    async with new_world() as world:
        session = await world.submit()
        await world.until(session, lambda view: view["visits_closed"] >= 1)
        await world["platform"].kill()
        await asyncio.sleep(AWAY_S)
        await world["platform"].start()
        await _same_end(world, session, recorded)


@pytest.mark.parametrize("jump", [pytest.param(3600.0, marks=pytest.mark.slow), -3600.0])
async def test_all_clocks_jump(jump: float, new_world: NewWorld, recorded: Recording) -> None:
    async with new_world(own_gpu=True) as world:  # a lent GPU's clock is the machine's
        session = await world.submit()
        await world.until(session, lambda view: view["visits_closed"] >= 1)
        world.offset = jump
        await _same_end(world, session, recorded)


@pytest.mark.parametrize("skew", [25.0, pytest.param(-25.0, marks=pytest.mark.slow)])
async def test_a_clock_that_is_a_little_wrong(skew: float, new_world: NewWorld, recorded: Recording) -> None:
    async with new_world() as world:
        world.skew = {"holder-city": skew, "platform": -skew, "agent": skew}  # 50 s between two of them; 60 are allowed
        await _same_end(world, await world.submit(), recorded)


@pytest.mark.parametrize(
    "party", ["holder-city", *(pytest.param(other, marks=pytest.mark.slow) for other in ("orchestrator", "platform"))]
)
async def test_one_clock_jumps_and_is_set_right(party: str, new_world: NewWorld, recorded: Recording) -> None:
    async with new_world() as world:
        session = await world.submit(
            lease_s=2
        )  # whose holder says nothing that can be believed is waited for no longer
        await world.until(session, lambda view: view["visits_closed"] >= 1)
        world.skew[party] = world.skew["owner" if party == "orchestrator" else party] = 3600.0
        if party == "platform":
            await world.until(session, says("clock"))
        else:
            # The holder can say nothing that anybody would believe: its lease ends. The orchestrator is refused with "clock" where it asks
            # somebody; but when it jumps between two visits it asks nobody, for it believes no holder that its channel stands.
            await asyncio.sleep(3 * AWAY_S)
        view = await world.owner.session(session)
        assert view["phase"] == "RUNNING", view["failure"]
        world.skew.clear()
        await _same_end(world, session, recorded)


@pytest.mark.parametrize("restarted", [True, pytest.param(False, marks=pytest.mark.slow)])
async def test_a_gpu_that_is_lost_at_a_holder_is_missed_before_the_lease_ends(
    restarted: bool, new_world: NewWorld, recorded: Recording
) -> None:
    """Its holder would try until then, and nobody else is at the GPU."""
    async with new_world(own_gpu=True) as world:

        async def lost() -> None:
            await world["agent"].kill()
            if not restarted:
                await world.until(session, lambda view: any("unreachable" in word for word in view["waiting_for"]))
            await world["agent"].start()

        trap = Trap(world, Point("holder", "agent", "/copy", "before", 3), lost)
        session = await world.submit(lease_s=600)
        await trap.done()
        await _same_end(world, session, recorded)
        assert "lost" in {visit["outcome"] for visit in await world.visits(session)}
