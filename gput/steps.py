"""A visit's steps as a table: what each takes, and how much of a visit that is. Arithmetic on the API's visits; knows no service."""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from shared.protocol.work import control_s, overhead_s

OVERHEAD = "overhead (all but training, validation)"
CONTROL = "control (all but data, training, validation)"
COLUMNS = ("step", "median_ms", "p99_ms", "share")


def closed(visits: Iterable[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    """The visits that came to their end; of the others only some steps were taken."""
    return [visit for visit in visits if visit["outcome"] == "closed"]


def percentiles(seconds: Iterable[float]) -> dict[str, float]:
    """Median and 99th percentile in milliseconds."""
    found = sorted(value * 1000 for value in seconds)
    return {"median_ms": round(statistics.median(found), 3), "p99_ms": round(found[int(len(found) * 0.99)], 3)}


def by_step(visits: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """A row for each step of these visits, one for their overhead, and one for their control cost, the last; `share`: of all their time.

    Without visits no row.
    """
    if not visits:
        return []
    steps = list(dict.fromkeys(step for visit in visits for step in visit["durations"]))
    total = sum(sum(visit["durations"].values()) for visit in visits)
    columns = {step: [visit["durations"].get(step, 0.0) for visit in visits] for step in steps}
    columns[OVERHEAD] = [overhead_s(visit) for visit in visits]
    columns[CONTROL] = [control_s(visit) for visit in visits]
    return [
        {"step": step, **percentiles(seconds), "share": f"{sum(seconds) / total:.1%}" if total else "-"}
        for step, seconds in columns.items()
    ]
