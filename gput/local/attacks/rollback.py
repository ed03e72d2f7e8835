"""HOSTILE CODE (attack tour), V13: the platform puts the orchestrator's whole disk back to an earlier moment. Knows no service's inside."""

from __future__ import annotations

import asyncio
import shutil

from gput.local.attacks.attack import EVERY, Attack
from gput.local.attacks.result import Fact, Result, Said
from gput.local.attacks.stage import Stage

EARLY, LATE = 1, 3


async def run(stage: Stage) -> Result:
    """Copy the disk early, let the session go on, put the copy back."""
    await stage.start()
    disk, copy = stage.installation.folder / "orchestrator", stage.folder / "disk-copy"
    early = await _killed_at(stage, EARLY)
    await asyncio.to_thread(shutil.copytree, disk, copy)
    await stage.restart("orchestrator")
    late = await _killed_at(stage, LATE)
    await asyncio.to_thread(shutil.rmtree, disk)
    await asyncio.to_thread(shutil.copytree, copy, disk)
    before = await stage.switches()
    await stage.restart("orchestrator")
    view = await stage.ended()
    failure, after = view["failure"] or {}, await stage.switches()
    return Result(
        f"orchestrator killed after {late} visits; its whole disk put back to a copy from after {early}; started again. All rows of "
        "the copy are genuine",
        "STOPPED",
        (
            Said(
                "orchestrator, asking its holders for their log heads",
                str(failure.get("code")),
                str(failure.get("detail")),
            ),
        ),
        (
            Fact(
                f"session {view['phase']}",
                failure.get("code") == "log-rolled-back",
            ),
            Fact(
                f"no visit repeated: {view['visits_closed']} closed in the old copy, {late} in truth",
                view["visits_closed"] < late,
            ),
            Fact(f"GPU left alone: {before} MUX switches before, {after} after", before == after),
            Fact(f"remedy given: {failure.get('remedy')}", bool(failure.get("remedy"))),
        ),
        "the same: heads live with the holders; besides, the GPU counts lives",
    )


async def _killed_at(stage: Stage, visits: int) -> int:
    view = await stage.until(lambda view: view["visits_closed"] >= visits)
    await stage.kill("orchestrator")
    return int(view["visits_closed"])


ATTACK = Attack(
    "rollback", ("V13",), EVERY, "platform, which owns the orchestrator's disk",
    "the orchestrator's disk is put back to an earlier state while it is down",
    "V13: GPU life and epoch counters, log head held by holders", run, rounds=5,
)  # fmt: skip
