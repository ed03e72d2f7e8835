"""A hostile platform round a whole session, in every travel mode: it costs time, and changes, shows and skips nothing."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from typing import Any

import pytest

from gpu_agent.unit import GpuUnit
from shared.names import RegionKind, TravelMode
from tests.adversary.conftest import SEED
from tests.adversary.platform import HostilePlatform
from tests.adversary.platform_power import reroute
from tests.adversary.rows import attack
from tests.adversary.test_sizes import SIZES
from tests.laws.wire_acts import How
from tests.world.world import NewWorld
from tests.world.world_material import HOLDERS, Material
from tests.world.world_recorder import recording
from tests.world.world_recording import Recording
from tests.world.world_search import leaks

QUICK = {("corrupt", TravelMode.PAPER), ("late", TravelMode.DIRECT)}
HOWS: tuple[How, ...] = ("corrupt", "repeat", "replay", "late", "cut", "lose")


def tiers(cases: Iterable[tuple[Any, ...]], quick: set[tuple[Any, ...]]) -> list[Any]:
    return [pytest.param(*case, marks=() if case in quick else pytest.mark.slow) for case in cases]


@attack(
    "V01 V02 V03 V04",
    scoped="stopped: AES-GCM; what was disturbed is refused, and the visit repeated",
    direct="stopped: AES-GCM; what was disturbed is refused, and the visit repeated",
    paper="stopped: AES-GCM; what was disturbed is refused, and the visit repeated",
)
@pytest.mark.parametrize(("how", "mode"), tiers([(how, mode) for how in HOWS for mode in TravelMode], QUICK))
async def test_disturbed_records_change_nothing(
    how: How, mode: TravelMode, new_world: NewWorld, recorded: Recording, material: Material
) -> None:
    with recording() as recorder:
        async with new_world() as world:
            platform = HostilePlatform(world, mode, recorder, seed=SEED)
            await platform.disturb_records(how)
            session = await world.submit(travel_mode=mode, lease_s=5)
            view = await world.completed(session)
            assert platform.done == 1
            assert view["model"]["digest"] == recorded.view["model"]["digest"]
            assert platform.snooped(material.canaries.values()) == []
    assert recorder.reused == []


@attack(
    "V06 V07",
    scoped="stopped: the key is the access right; a wrong route only costs time",
    paper="stopped: the key is the access right; a wrong route only costs time",
)
@pytest.mark.parametrize("mode", [TravelMode.SCOPED, pytest.param(TravelMode.PAPER, marks=pytest.mark.slow)])
async def test_a_route_changed_in_mid_visit_changes_nothing(
    mode: TravelMode, new_world: NewWorld, recorded: Recording, unit: GpuUnit, material: Material
) -> None:
    with recording() as recorder:
        async with new_world() as world:
            platform = HostilePlatform(world, mode, recorder, unit, seed=SEED)
            reroute(platform)
            session = await world.submit(travel_mode=mode)
            view = await world.completed(session)
            assert platform.done == 6
            assert view["model"]["digest"] == recorded.view["model"]["digest"]
            assert platform.snooped(material.canaries.values()) == []
    assert recorder.reused == []


@attack(
    "V12",
    scoped="stopped: a command that was lost is sent again, and done once",
    direct="stopped: a command that was lost is sent again, and done once",
    paper="stopped: a command that was lost is sent again, and done once",
)
@pytest.mark.slow
@pytest.mark.parametrize("answer", [False, True], ids=["request", "answer"])
@pytest.mark.parametrize("mode", TravelMode)
async def test_every_command_dropped_once_is_done_once(
    mode: TravelMode, answer: bool, new_world: NewWorld, recorded: Recording
) -> None:
    with recording() as recorder:
        async with new_world() as world:
            platform = HostilePlatform(world, mode, recorder)
            platform.drop_each_once("/ports/orchestrator/commands", answer=answer)
            session = await world.submit(travel_mode=mode, rounds=1)
            view = await world.completed(session)
            assert platform.done > 10
            assert view["visits_closed"] == len(HOLDERS)
            assert view["step"] == len(HOLDERS) * 3
            assert {v["outcome"] for v in await world.visits(session)} <= {"closed", "recalled"}
    assert recorder.reused == []


@attack(
    "V20",
    scoped="out: nobody promises service; the session stands still, and goes on to the same model",
    direct="out: nobody promises service; the session stands still, and goes on to the same model",
    paper="out: nobody promises service; the session stands still, and goes on to the same model",
)
@pytest.mark.parametrize("mode", tiers([(mode,) for mode in TravelMode], {(TravelMode.DIRECT,)}))
async def test_a_starved_session_goes_on_where_it_stood(
    mode: TravelMode, new_world: NewWorld, recorded: Recording
) -> None:
    with recording() as recorder:
        async with new_world() as world:
            platform = HostilePlatform(world, mode, recorder)
            session = await world.submit(travel_mode=mode)
            await world.until(session, lambda view: view["visits_closed"] >= 2)
            with platform.starving():
                await asyncio.sleep(1.0)
                closed = (await world.owner.session(session))["visits_closed"]
                assert closed <= 4
            assert platform.done > 0
            view = await world.completed(session)
            assert view["model"]["digest"] == recorded.view["model"]["digest"]
    assert recorder.reused == []


@attack("V18", any="stopped: no interface shows device memory")
async def test_no_interface_shows_device_memory(new_world: NewWorld, unit: GpuUnit, material: Material) -> None:
    with recording() as recorder:
        async with new_world(holders=("city",)) as world:
            session = await world.submit(rounds=4)
            await world.until(session, lambda view: view["visits_closed"] >= 1)
            platform = HostilePlatform(world, TravelMode.SCOPED, recorder)
            region = unit.device._state.regions.all(RegionKind.MODEL)[0]
            held = bytes(unit.device._hbm.view(region.address, min(region.length, 4096)))
            needles = [held[at : at + 16] for at in range(0, len(held), 16) if len(set(held[at : at + 16])) > 8]
            told = b"".join([await platform.look_everywhere("agent"), await platform.look_everywhere("platform")])
            assert platform.done >= 4
            assert len(needles) > 10
            assert leaks([told], needles) == []
            assert platform.snooped(material.canaries.values()) == []


@attack("V17", scoped=SIZES)
def test_sizes_are_the_same_for_holders_of_equally_many_records(recorded: Recording) -> None:
    sizes = {
        tuple(len(e.call.body) for e in recorded.wire.calls(f"holder-{holder}", "agent", "/copy") if e.status == 200)
        for holder in HOLDERS
    }
    assert len(sizes) == 1
