"""A dataset's file into GPU memory: what each link moved beside its limit, and where the time goes. Arithmetic; knows no clock."""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

LINK_COLUMNS = (
    "link", "bytes", "seconds", "gb_per_s", "moved_gb_per_s", "limit", "limit_gb_per_s", "ratio", "moved_ratio", "memory_ratio",
    "moved_memory_ratio",
)  # fmt: skip
STAGE_COLUMNS = ("stage", "where", "ns_per_byte", "share")
NANO, GIGA = 1e9, 1e9
# Sealing and opening run side by side, so the slower of the two is what one core a side allows.
CORE, PLAIN = "one core's AES-256-GCM", "the same server and client, nothing sealed"
_BY_LINK = ("gb_per_s", "ratio", "memory_ratio", "moved_gb_per_s", "moved_ratio", "moved_memory_ratio")


@dataclass(frozen=True)
class Transfer:
    """One visit's records, `length` bytes: seconds until published, until the last was accepted in GPU memory, and all processors' seconds.

    `limit`, `memory`: bytes a second that cannot be beaten, of the link and from memory to memory, as they were right before and after:
    a machine that others share changes by the second.
    """

    length: int
    seconds: float
    moved_s: float
    processor_s: float
    limit: float
    memory: float


@dataclass(frozen=True)
class Stage:
    """What one part of the work takes for a byte, alone on one core. `counts`: whether it is done while the visit waits."""

    name: str
    where: str
    seconds: float
    counts: bool = True


@dataclass(frozen=True)
class Found:
    """What one run found. `seal`, `open`: bytes a second of one core; `links`: transfers by link; `length`: bytes that the stages had."""

    length: int
    seal: float
    open: float
    links: Mapping[str, Sequence[Transfer]]
    stages: Sequence[Stage]


def links(found: Found) -> list[dict[str, Any]]:
    """A row for each link. Ratios are medians of the transfers' own."""
    rows = []
    for link, transfers in found.links.items():
        rates = [(one.length / one.seconds, one.length / one.moved_s, one) for one in transfers]
        rows.append({
            "link": link, "bytes": transfers[0].length, "seconds": _median(one.seconds for one in transfers),
            "gb_per_s": _median(whole / GIGA for whole, _, _ in rates),
            "moved_gb_per_s": _median(moved / GIGA for _, moved, _ in rates),
            "limit": PLAIN if "http" in link else CORE, "limit_gb_per_s": _median(one.limit / GIGA for one in transfers),
            "ratio": _median(whole / one.limit for whole, _, one in rates),
            "moved_ratio": _median(moved / one.limit for _, moved, one in rates),
            "memory_ratio": _median(whole / one.memory for whole, _, one in rates),
            "moved_memory_ratio": _median(moved / one.memory for _, moved, one in rates),
        })  # fmt: skip
    return rows


def stages(found: Found) -> list[dict[str, Any]]:
    """A row for each stage; `share` of what is done while the visit waits."""
    whole = sum(one.seconds for one in found.stages if one.counts)
    return [
        {
            "stage": one.name, "where": one.where, "ns_per_byte": _digits(one.seconds / found.length * NANO),
            "share": f"{one.seconds / whole:.0%}" if one.counts else "beforehand",
        }
        for one in found.stages
    ]  # fmt: skip


def named(found: Found) -> dict[str, float]:
    """The same as figures by name."""
    figures = {"seal_gb_per_s": found.seal / GIGA, "open_gb_per_s": found.open / GIGA}
    figures["memory_gb_per_s"] = statistics.median(one.memory for all_ in found.links.values() for one in all_) / GIGA
    figures["http.plain_gb_per_s"] = statistics.median(one.limit for one in found.links["http"]) / GIGA
    for row, transfers in zip(links(found), found.links.values(), strict=True):
        figures |= {f"{row['link']}.{name}": row[name] for name in _BY_LINK}
        processor = statistics.median(one.processor_s for one in transfers)
        figures[f"{row['link']}.processor_ns"] = processor / transfers[0].length * NANO
    return figures | {f"{_word(one)}.stage_ns": one.seconds / found.length * NANO for one in found.stages}


def _median(values: Iterable[float]) -> float:
    return _digits(statistics.median(values))


def _word(stage: Stage) -> str:
    return stage.name.replace(" ", "-")


def _digits(value: float) -> float:
    return float(f"{value:.4g}")
