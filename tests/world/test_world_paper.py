"""Travel mode `paper` with a holder that uses its key to the whole GPU: found out, undone bit for bit, and the session goes on."""

from __future__ import annotations

import pytest

from gpu_agent.unit import GpuUnit
from shared.names import RegionKind, TravelMode
from tests.adversary.holder import NAME, HostileHolder
from tests.adversary.platform import HostilePlatform
from tests.adversary.rows import attack
from tests.world.world import NewWorld
from tests.world.world_recorder import Recorder
from tests.world.world_recording import Recording

FOUND = {
    "model": ((RegionKind.MODEL,), ["quarantined", "closed"]),
    "code": ((RegionKind.CODE,), ["closed"]),  # uploaded again before anything runs
    "buffer": ((RegionKind.DATASET,), ["recalled", "closed"]),
    "both copies": ((RegionKind.MODEL, RegionKind.COMMITTED), ["quarantined", "closed"]),
    "committed copy": ((RegionKind.COMMITTED,), ["quarantined", "closed"]),
    "held-out records": ((RegionKind.VALIDATION,), ["quarantined", "closed"]),
}


@attack("H04 H05", paper="stopped: read-back, roll-back and sweep")
@pytest.mark.parametrize("what", FOUND)
async def test_what_a_holder_overwrote_is_undone(
    what: str, new_world: NewWorld, unit: GpuUnit, recorded: Recording, monkeypatch: pytest.MonkeyPatch
) -> None:
    """H04, H05, H14: whatever the key was used for, the model at the end is that of an undisturbed session."""
    kinds, outcomes = FOUND[what]
    async with new_world() as world:
        with HostilePlatform(world, TravelMode.PAPER, Recorder(), unit) as platform:
            holder = HostileHolder(platform, "overwrite", monkeypatch, kinds=kinds)
            holder.turn()
            session = await world.submit(travel_mode=TravelMode.PAPER)
            view = await world.completed(session)
        assert ("command", "accepted") in holder.said
        assert [v["outcome"] for v in await world.visits(session) if v["index"] == 1][: len(outcomes)] == outcomes
        assert view["model"]["digest"] == recorded.view["model"]["digest"]


@pytest.mark.parametrize("kind", [RegionKind.MODEL, RegionKind.COMMITTED, RegionKind.VALIDATION])
async def test_a_holder_that_never_stops_is_passed_over(
    kind: RegionKind, new_world: NewWorld, unit: GpuUnit, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The session goes on without it, where the manifest's quorum allows; also where each of its visits costs the GPU all it holds."""
    async with new_world() as world:
        with HostilePlatform(world, TravelMode.PAPER, Recorder(), unit) as platform:
            HostileHolder(platform, "overwrite", monkeypatch, visit=0, kinds=(kind,)).turn()
            session = await world.submit(travel_mode=TravelMode.PAPER, quorum=2, rounds=1)
            view = await world.completed(session)
        visits = await world.visits(session)
        assert {v["outcome"] for v in visits if v["holder"] == NAME} == {"quarantined"}
        assert {v["outcome"] for v in visits if v["holder"] != NAME} == {"closed"}
        assert view["step"] == 2 * 3
