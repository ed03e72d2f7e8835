"""A dataset's file into GPU memory: what each link moved beside its limit, and where the time goes. Arithmetic; knows no clock."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

LINK_COLUMNS = (
    "link", "bytes", "seconds", "gb_per_s", "moved_gb_per_s", "limit", "limit_gb_per_s", "ratio", "moved_ratio", "memory_ratio",
    "moved_memory_ratio",
)  # fmt: skip
STAGE_COLUMNS = ("stage", "where", "ns_per_byte", "share")
NANO, GIGA = 1e9, 1e9
_BY_LINK = ("gb_per_s", "ratio", "memory_ratio", "moved_gb_per_s", "moved_ratio", "moved_memory_ratio")


@dataclass(frozen=True)
class Transfer:
    """One visit's records: seconds until published, until the last of them was accepted in GPU memory, and all processors' seconds."""

    seconds: float
    moved_s: float
    processor_s: float


@dataclass(frozen=True)
class Stage:
    """What one part of the work takes for a byte, alone on one core. `counts`: whether it is done while the visit waits."""

    name: str
    where: str
    seconds: float
    counts: bool = True


@dataclass(frozen=True)
class Found:
    """What one run found. `seal`, `open`: bytes a second of one core; `memory`: of two cores' cipher from memory to memory; `links`:
    transfers by link; `plain`: the bare server's seconds."""

    length: int
    seal: float
    open: float
    memory: float
    links: Mapping[str, Sequence[Transfer]]
    plain: Sequence[float]
    stages: Sequence[Stage]

    @property
    def limits(self) -> dict[str, tuple[str, float]]:
        """By link: what cannot be beaten, and its bytes a second."""
        # Sealing and opening run side by side, so the slower of the two is what one core a side allows.
        core = "one core's AES-256-GCM", min(self.seal, self.open)
        return {
            "bounce": core,
            "prepared": core,
            "http": ("the same server and client, nothing sealed", self.length / statistics.median(self.plain)),
        }


def links(found: Found) -> list[dict[str, Any]]:
    """A row for each link."""
    rows = []
    for link, transfers in found.links.items():
        name, limit = found.limits[link]
        seconds = statistics.median(one.seconds for one in transfers)
        whole, moved = found.length / seconds, found.length / statistics.median(one.moved_s for one in transfers)
        rows.append({
            "link": link, "bytes": found.length, "seconds": _digits(seconds), "gb_per_s": _digits(whole / GIGA),
            "moved_gb_per_s": _digits(moved / GIGA), "limit": name, "limit_gb_per_s": _digits(limit / GIGA),
            "ratio": _digits(whole / limit), "moved_ratio": _digits(moved / limit),
            "memory_ratio": _digits(whole / found.memory), "moved_memory_ratio": _digits(moved / found.memory),
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
    figures["memory_gb_per_s"] = found.memory / GIGA
    figures["http.plain_gb_per_s"] = found.limits["http"][1] / GIGA
    for row, transfers in zip(links(found), found.links.values(), strict=True):
        figures |= {f"{row['link']}.{name}": row[name] for name in _BY_LINK}
        processor = statistics.median(one.processor_s for one in transfers)
        figures[f"{row['link']}.processor_ns"] = processor / found.length * NANO
    return figures | {f"{_word(one)}.stage_ns": one.seconds / found.length * NANO for one in found.stages}


def _word(stage: Stage) -> str:
    return stage.name.replace(" ", "-")


def _digits(value: float) -> float:
    return float(f"{value:.4g}")
