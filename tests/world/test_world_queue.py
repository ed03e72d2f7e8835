"""Many sessions and one GPU: each runs to its end, in the order of submission, and those that wait say for what."""

from __future__ import annotations

import asyncio
from itertools import pairwise

import pytest

from tests.world.world import World


@pytest.mark.parametrize("count", [4, pytest.param(20, marks=pytest.mark.slow)])
async def test_sessions_take_turns(count: int, world: World) -> None:
    await world.enrol()
    sessions = []
    for number in range(count):
        manifest = world.material.manifest(name=f"study-{number}", rounds=1)
        sessions.append(str((await world.owner.submit(manifest))["id"]))
    last = sessions[-1]
    reasons = set()
    while (view := await world.owner.session(last))["phase"] in ("AWAITING_APPROVAL", "READY"):
        reasons |= set(view["waiting_for"]) if view["phase"] == "READY" else set()
        await asyncio.sleep(0.05)
    assert {f"gpu-0 (in use by {session})" for session in sessions[:-1]} & reasons, reasons
    done = [await world.completed(session) for session in sessions]
    models = {view["model"]["digest"] for view in done}
    assert len(models) == 1, "the same study gives the same model, whoever had the GPU before"
    visits = [await world.visits(session) for session in sessions]
    closed = [(min(v["planned_at"] for v in of), max(v["closed_at"] for v in of)) for of in visits]
    assert all(before[1] <= after[0] for before, after in pairwise(closed)), "one after the other"
