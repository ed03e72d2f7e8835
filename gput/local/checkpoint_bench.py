"""What sealed checkpoints cost a session, for `gput bench checkpoint`: the same sessions with and without them. Knows the API's views only.

Real processes on this machine. A session stands still while one is made, and its `checkpointed` event says for how long; held against the
time of its training steps, that is the share that the settings bound. Beside it stand the whole sessions' times, which other work on the
machine moves.
"""

from __future__ import annotations

import asyncio
import shutil
import statistics
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from gput.local.demo import Demo
from gput.local.demos.plan import Plan
from gput.local.job import Say
from shared.errors import JobFailed

NEVER = {"checkpoint_interval_s": 1e9}
SETTINGS: dict[str, Mapping[str, float]] = {"default": {}, "never": NEVER}


async def compare(folder: Path, plan: Plan, pairs: int, say: Say) -> list[dict[str, Any]]:
    """A row per session, `pairs` with the defaults and as many without checkpoints, by turns.

    Raises:
        JobFailed: a session did not complete.
    """
    rows: list[dict[str, Any]] = []
    program: Path | None = None
    for pair in range(pairs):
        # Who is first in a pair changes: what warms up or slows down meets both.
        for name in sorted(SETTINGS, reverse=bool(pair % 2)):
            say(f"session {len(rows) + 1} of {2 * pairs}: checkpoints {name} …")
            demo = Demo(folder / f"{pair}-{name}", plan, lambda text: None)
            demo.installation.tuning = SETTINGS[name]
            if program is not None:  # one plan, one program
                await asyncio.to_thread(_copy, program, demo.folder)
            rows.append({"checkpoints": name, **await _session(demo)})
            program = demo.folder / "gpt2.gput"
    return rows


def ratios(rows: list[dict[str, Any]]) -> dict[str, float]:
    """Medians of the sessions with checkpoints ÷ those without; and what share of all their training time checkpoints took."""
    with_them, without = ([row for row in rows if row["checkpoints"] == name] for name in SETTINGS)
    found = {
        f"{name}_ratio": round(_median(with_them, f"{name}_s") / _median(without, f"{name}_s"), 4)
        for name in ("training", "session")
    }
    took, trained = (sum(row[name] for row in with_them) for name in ("checkpoint_s", "training_s"))
    return {**found, "share_of_training": round(took / trained, 4)}


def _median(rows: list[dict[str, Any]], name: str) -> float:
    return float(statistics.median(row[name] for row in rows))


def _copy(program: Path, folder: Path) -> None:
    folder.mkdir(parents=True)
    shutil.copyfile(program, folder / program.name)


async def _session(demo: Demo) -> dict[str, Any]:
    try:
        await demo.start()
        view = await demo.client.wait(demo.session)
        if view["phase"] != "COMPLETED":
            raise JobFailed(f"the session ended {view['phase']}: {view.get('failure')}", code="session-failed")
        return await _figures(demo)
    finally:
        await demo.stop()


async def _figures(demo: Demo) -> dict[str, Any]:
    visits = [v for v in await demo.client.items(f"sessions/{demo.session}/visits") if v["outcome"] == "closed"]
    facts = [event.data async for event in demo.client.events(demo.session)]
    took = [fact["seconds"] for fact in facts if fact.get("fact") == "checkpointed"]
    began, ended = (min(v["planned_at"] for v in visits), max(v["closed_at"] for v in visits))
    return {
        "made": len(took), "checkpoint_s": round(sum(took), 4), "session_s": round(ended - began, 3),
        "training_s": round(sum(v["durations"]["train"] for v in visits), 3),
    }  # fmt: skip
