"""Whether a long session grows: samples of processes and folders by window of visits, and the trend of each figure. Knows no service.

A figure *grows* where its change over the run, by a straight line through its windows, is more than four times the line's own standard
error and more than a fiftieth of what it was. The first half of the windows is not judged: caches fill, code is loaded, the allocator
finds its size; what grows without end still does so in the second half.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

WARM_UP = 2
"""The first 1/2 of the windows."""
SIGNIFICANT = 4.0
LEAST_CHANGE = 0.02


@dataclass(frozen=True)
class Sample:
    """Figures by name after `visits` closed visits."""

    visits: int
    figures: Mapping[str, float]


def sample(visits: int, processes: Mapping[str, int], folders: Mapping[str, Path]) -> Sample:
    """What processes hold (by id) and folders weigh now. Holders, of which there are many, count as their mean."""
    by_kind: dict[str, list[dict[str, float]]] = {}
    for name, pid in processes.items():
        by_kind.setdefault(name.partition("-")[0], []).append(_process(pid))
    figures = {
        f"{kind} {figure}": statistics.fmean(one[figure] for one in found)
        for kind, found in by_kind.items()
        for figure in found[0]
    }
    for name, folder in folders.items():
        database, rest = _folder(folder)
        figures[f"{name} database_kb"], figures[f"{name} files_kb"] = database / 1024, rest / 1024
    return Sample(visits, figures)


def rss_anon_mb(pid: int) -> float:
    """A process's own memory (RssAnon), in MB."""
    return int(_status(pid)["RssAnon"].split()[0]) / 1024


def _status(pid: int) -> dict[str, str]:
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return {name: value for name, separator, value in (line.partition(":") for line in lines) if separator}


def _process(pid: int) -> dict[str, float]:
    status = _status(pid)
    return {
        "rss_anon_mb": rss_anon_mb(pid),
        "handles": float(sum(1 for _ in Path(f"/proc/{pid}/fd").iterdir())),
        "threads": float(status["Threads"]),
    }


def _folder(folder: Path) -> tuple[int, int]:
    """Bytes of databases (with their logs), and of everything else. What vanishes meanwhile counts nothing."""
    database = rest = 0
    for path in folder.rglob("*"):
        try:
            size = path.stat().st_size if path.is_file() else 0
        except FileNotFoundError:
            continue
        if path.name.partition("-")[0].endswith(".db"):
            database += size
        else:
            rest += size
    return database, rest


def trends(samples: Sequence[Sample]) -> list[dict[str, Any]]:
    """Each figure's row: first and last judged value, change per 1000 visits, and whether it grows."""
    judged = samples[len(samples) // WARM_UP :]
    names = list(dict.fromkeys(name for one in judged for name in one.figures))
    return [_trend(name, [(one.visits, one.figures[name]) for one in judged if name in one.figures]) for name in names]


def _trend(name: str, points: Sequence[tuple[int, float]]) -> dict[str, Any]:
    first, last = points[0][1], points[-1][1]
    row = {"figure": name, "first": round(first, 3), "last": round(last, 3)}
    if len(points) < 4:
        return {**row, "per_1000_visits": None, "grows": "too few windows"}
    slope, error = _line(points)
    span = points[-1][0] - points[0][0]
    grows = slope > SIGNIFICANT * error and slope * span > LEAST_CHANGE * max(abs(first), 1e-9)
    return {**row, "per_1000_visits": round(slope * 1000, 4), "grows": "yes" if grows else "no"}


def _line(points: Sequence[tuple[int, float]]) -> tuple[float, float]:
    """Slope of the least-squares line and its standard error."""
    x, y = [float(at) for at, _ in points], [value for _, value in points]
    slope, offset = statistics.linear_regression(x, y)
    middle = statistics.fmean(x)
    spread = sum((at - middle) ** 2 for at in x)
    rest = sum((value - offset - slope * at) ** 2 for at, value in zip(x, y, strict=True))
    return slope, math.sqrt(rest / (len(points) - 2) / spread)
