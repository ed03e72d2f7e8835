"""Each of the hostile platform's building blocks round a whole session, in every travel mode: the same model, or a refusal by name.

That no canary is to be seen on any link, disk or log is asserted at the end of every world (`new_world`).
"""

from __future__ import annotations

from typing import Any

import pytest

from gpu_agent.unit import GpuUnit
from orchestrator.runner import patience
from shared.names import TravelMode
from tests.adversary.conftest import PAIR, SEED
from tests.adversary.platform import HostilePlatform
from tests.adversary.platform_blocks import BLOCKS, cases
from tests.adversary.platform_edges import RETURN, LateWrites, reset_at_each_fact
from tests.adversary.rows import attack
from tests.world.world import NewWorld
from tests.world.world_recorder import recording
from tests.world.world_recording import Recording

QUICK = {
    ("reflect", TravelMode.PAPER), ("bind_two_ports", TravelMode.SCOPED), ("exchange_once", TravelMode.DIRECT),
    ("forge_commands", TravelMode.DIRECT),
}  # fmt: skip


def params() -> list[Any]:
    found = []
    for name, block, mode in cases():
        stated: dict[str, Any] = {mode.value: f"stopped: {block.how}"}
        marks = [attack(block.rows, **stated)] + ([] if (name, mode) in QUICK else [pytest.mark.slow])
        found.append(pytest.param(name, mode, marks=marks, id=f"{name}-{mode.value}"))
    return found


@pytest.mark.parametrize(("name", "mode"), params())
async def test_a_building_block_changes_nothing(
    name: str, mode: TravelMode, new_world: NewWorld, undisturbed: str, unit: GpuUnit, monkeypatch: pytest.MonkeyPatch
) -> None:
    block = BLOCKS[name]
    if block.failure is not None:  # whoever answers as the GPU may be a stranger on the line: some lives are tried
        monkeypatch.setattr(patience, "MAX_CONFLICTS", 3)
    with recording() as recorder:
        async with new_world(holders=PAIR) as world:
            with HostilePlatform(world, mode, recorder, unit, seed=SEED) as platform:
                block.arm(platform)
                session = await world.submit(travel_mode=mode, lease_s=5)
                view = await world.finish(session)
                assert platform.done >= block.least
                assert set(platform.told) <= block.refusals, platform.told
                if block.failure is None:
                    assert view["phase"] == "COMPLETED", view["failure"]
                    assert view["model"]["digest"] == undisturbed
                else:
                    assert (view["phase"], view["failure"]["code"], view["model"]) == ("FAILED", block.failure, None)
    assert recorder.reused == []


EDGES = [
    *RETURN,
    "before open_epoch",
    "after open_epoch",
    "after drain",
    "after upload_program",
    "after measure",
    "after scrub",
]
PARTS = 3
"""Sessions that it takes: each visit has one closing record to hold back."""
LATE = "stopped: the fence kills the key before anything is looked at, and nothing is taken after it"


@attack("H08 V03 V12", scoped=LATE, direct=LATE, paper=LATE)
@pytest.mark.parametrize(
    ("mode", "part"),
    [
        pytest.param(mode, part, marks=() if (mode, part) == (TravelMode.SCOPED, 0) else pytest.mark.slow)
        for mode in TravelMode
        for part in range(PARTS)
    ],
)
async def test_a_write_delayed_to_any_edge_changes_nothing(
    mode: TravelMode, part: int, new_world: NewWorld, recorded: Recording, unit: GpuUnit
) -> None:
    """Every record again at every edge of its visit's return; and closing records that come at one edge only, of which their holder was
    told that they had arrived."""
    with recording() as recorder:
        async with new_world() as world:
            with HostilePlatform(world, mode, recorder, unit, seed=SEED) as platform:
                late = LateWrites(platform)
                late.arm()
                late.hold_back(EDGES[part::PARTS])
                session = await world.submit(travel_mode=mode)
                view = await world.finish(session)
                assert late.taken_late == []
                assert view["phase"] == "COMPLETED", view["failure"]
                assert set(EDGES) <= set(late.told), "edges that were never reached"
                assert late.due == [], "edges at which no closing record came"
                assert view["model"]["digest"] == recorded.view["model"]["digest"]
    assert recorder.reused == []


RESTORED = "stopped: boot counter, sealed checkpoint"


@pytest.mark.slow
@attack("V10", scoped=RESTORED, direct=RESTORED, paper=RESTORED)
@pytest.mark.parametrize("mode", TravelMode)
async def test_a_reset_in_each_state_changes_nothing(
    mode: TravelMode, new_world: NewWorld, recorded: Recording, unit: GpuUnit
) -> None:
    with recording() as recorder:
        async with new_world() as world:
            with HostilePlatform(world, mode, recorder, unit, seed=SEED) as platform:
                left = reset_at_each_fact(platform)
                session = await world.submit(travel_mode=mode)
                view = await world.completed(session)
                assert left == []
                assert platform.done == len(RETURN)
                assert view["model"]["digest"] == recorded.view["model"]["digest"]
    assert recorder.reused == []
