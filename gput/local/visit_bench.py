"""What a visit costs step by step, and what the services hold, for `gput bench visit`. Knows the API's views only.

Real processes on this machine, and short visits of the demo's model: the demo's own three holders, or any number of made-up ones.
"""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from gput.client import AsyncClient
from gput.local.crowd import Crowd, Load
from gput.local.demo import Demo
from gput.local.demos.texts import Texts
from gput.local.growth import rss_anon_mb
from gput.local.installation import Installation
from gput.local.job import Say, run_module
from gput.local.machine_limits import Limits, limits
from gput.steps import by_step, closed
from shared.claims.training import AdamW, TrainingOptions
from shared.errors import JobFailed

STEP_COLUMNS = ("step", "median_ms", "p99_ms", "share")
MEMORY_COLUMNS = ("service", "rss_anon_mb")
LIMIT_COLUMNS = ("limit", "median_ms")
BATCH = 4
TRAINING = TrainingOptions(optimizer=AdamW(lr=1e-3), batch_size=BATCH, seed=1, threads=2)
Rows = list[dict[str, Any]]


async def visits(folder: Path, count: int, say: Say) -> tuple[Rows, Rows, Limits]:
    """A row per step of at least `count` visits, the control cost as the last; a row per service with its memory; and what the machine
    takes for a durable write and for a call, found when the visits were over.

    Raises:
        JobFailed: the session did not complete.
    """
    demo = Demo(folder, Texts(rounds=-(-count // 3), steps=1, batch=BATCH, validation_records=16), say)
    try:
        await demo.start()
        found = await _finished(demo.client, demo.session)
        memory, orchestrator = _memory(demo.installation), demo.installation.services["orchestrator"]
        return by_step(closed(found)), memory, await limits(folder, orchestrator.url)
    finally:
        await demo.stop()


async def crowded(folder: Path, count: int, holders: int, say: Say) -> tuple[Rows, Rows]:
    """Steps and memory as of `visits`, with so many holders of made-up records; the holders' memory is one row, their mean.

    The first round is one more and does not count: in it every holder reads its records for the first time.

    Raises:
        JobFailed: the session did not complete.
    """
    program = folder / "gpt2.gput"
    say("building the training program (torch.export) …")
    await build(program, Texts().program_options)
    crowd = Crowd(folder / "crowd", count + holders, holders, say, Load(program=program, training=TRAINING))
    try:
        found = await counted(crowd, say)
        return by_step(found), _mean(_memory(crowd.installation))
    finally:
        await crowd.stop()


async def build(path: Path, options: Mapping[str, int | str]) -> None:
    """A GPT-2 of these options as a program."""
    words = [f"--option={name}={value}" for name, value in options.items()]
    await run_module("gput", "program", "build", "gpt2", "-o", str(path), *words)


async def counted(crowd: Crowd, say: Say) -> list[Mapping[str, Any]]:
    """Start it, and give the visits of its session once that is completed, without those of the first round: in it every holder reads its
    records for the first time. The caller stops it.

    Raises:
        JobFailed: the session did not complete.
    """
    client = await crowd.start()
    say(f"{crowd.rounds} rounds of {len(crowd.names)} holders …")
    return [visit for visit in closed(await _finished(client, crowd.session)) if visit["round"] > 1]


async def _finished(client: AsyncClient, session: str) -> Rows:
    view = await client.wait(session)
    if view["phase"] != "COMPLETED":
        raise JobFailed(f"the session ended {view['phase']}: {view.get('failure')}", code="session-failed")
    return list(await client.items(f"sessions/{session}/visits"))


def _memory(installation: Installation) -> Rows:
    running = ((name, service.pid) for name, service in installation.services.items())
    return [{"service": name, "rss_anon_mb": rss_anon_mb(pid)} for name, pid in running if pid]


def _mean(memory: Rows) -> Rows:
    """The holders as one."""
    own = [row for row in memory if not row["service"].startswith("holder-")]
    held = [float(row["rss_anon_mb"]) for row in memory if row["service"].startswith("holder-")]
    return [*own, {"service": "holder", "rss_anon_mb": statistics.fmean(held)}]


def named(steps: Iterable[dict[str, Any]], memory: Iterable[dict[str, Any]]) -> dict[str, float]:
    """The same as figures by name."""
    found = {
        f"{row['step'].partition(' ')[0]}.{name}": float(row[name]) for row in steps for name in ("median_ms", "p99_ms")
    }
    return found | {f"{row['service']}.rss_anon_mb": round(row["rss_anon_mb"], 3) for row in memory}


def named_by_holders(found: Mapping[int, tuple[Rows, Rows]]) -> dict[str, float]:
    """The same for each number of holders; where there are several, how much dearer the last one's control cost is than the first's."""
    each = {number: named(steps, memory) for number, (steps, memory) in found.items()}
    figures = {f"holders-{number}.{name}": value for number, one in each.items() for name, value in one.items()}
    few, many = (each[number]["control.median_ms"] for number in (min(each), max(each)))
    return figures if len(each) == 1 else figures | {"flatness": round(many / few, 4)}
