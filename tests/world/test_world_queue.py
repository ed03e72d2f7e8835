"""Many sessions and one GPU: each runs to its end, in the order of submission, and those that wait say for what."""

from __future__ import annotations

import asyncio
import sqlite3
from contextlib import closing
from itertools import pairwise

import pytest

from shared.errors import VerificationFailed
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
    # The first that is approved goes first, whichever that is, and approvals come when holders' policies have read them; of those that
    # wait then the one submitted first is next.
    closed = sorted((min(v["planned_at"] for v in of), max(v["closed_at"] for v in of)) for of in visits)
    assert all(before[1] <= after[0] for before, after in pairwise(closed)), "one after the other"


async def test_a_session_that_was_tampered_with_while_it_ran_keeps_its_gpu_from_nobody(world: World) -> None:
    session = await world.submit(rounds=30)
    await world.until(session, lambda view: view["visits_closed"] >= 1)
    newest = "(SELECT max(seq) FROM journal WHERE stream = :session)"
    with closing(sqlite3.connect(world.folder / "orchestrator" / "state.db", timeout=10)) as database, database:
        database.execute(f"DELETE FROM journal WHERE stream = :session AND seq = {newest}", {"session": session})
    other = await world.owner.submit(world.material.manifest(name="another", rounds=1))
    await world.completed(other["id"])
    with pytest.raises(VerificationFailed) as refused:
        await world.owner.session(session)
    assert refused.value.code == "journal-tampered"
