"""What a visit costs step by step, and what the services hold, for `gput bench visit`. Knows the API's views only.

Real processes on this machine, and short visits of the demo's model.
"""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from gput.local.demo import Demo
from gput.local.growth import rss_anon_mb
from gput.local.job import Plan, Say
from gput.local.report import control_s
from shared.errors import JobFailed

CONTROL = "control (all but data, training, validation)"


async def visits(
    folder: Path, count: int, say: Say, agent: Mapping[str, Any] | None = None
) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """A row per step of at least `count` visits, the control cost as the last; and a row per service with its memory.

    `agent`: settings of the GPU agent that differ from its defaults.

    Raises:
        JobFailed: the session did not complete.
    """
    demo = Demo(folder, Plan(rounds=-(-count // 3), steps=1, batch=4, validation_records=16), say)
    demo.installation.agent = agent or {}
    try:
        await demo.start()
        view = await demo.client.wait(demo.session)
        if view["phase"] != "COMPLETED":
            raise JobFailed(f"the session ended {view['phase']}: {view.get('failure')}", code="session-failed")
        found = await demo.client.items(f"sessions/{demo.session}/visits")
        memory = [
            {"service": name, "rss_anon_mb": rss_anon_mb(service.pid)}
            for name, service in demo.installation.services.items()
            if service.pid
        ]
        return _by_step([v for v in found if v["outcome"] == "closed"]), memory
    finally:
        await demo.stop()


def named(steps: Iterable[dict[str, Any]], memory: Iterable[dict[str, Any]]) -> dict[str, float]:
    """The same as figures by name."""
    found = {
        f"{row['step'].partition(' ')[0]}.{name}": float(value)
        for row in steps
        for name, value in row.items()
        if name != "step"
    }
    return found | {f"{row['service']}.rss_anon_mb": round(row["rss_anon_mb"], 3) for row in memory}


def percentiles(seconds: Iterable[float]) -> dict[str, float]:
    """Median and 99th percentile in milliseconds."""
    found = sorted(value * 1000 for value in seconds)
    return {"median_ms": round(statistics.median(found), 3), "p99_ms": round(found[int(len(found) * 0.99)], 3)}


def _by_step(visits: list[dict[str, Any]]) -> list[dict[str, Any]]:
    steps = list(dict.fromkeys(step for visit in visits for step in visit["durations"]))
    rows = [{"step": step, **percentiles(v["durations"].get(step, 0.0) for v in visits)} for step in steps]
    return [*rows, {"step": CONTROL, **percentiles(map(control_s, visits))}]
