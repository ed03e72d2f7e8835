"""What each switch of the data path is worth: re-encrypt or direct, overlap on or off, MAC chains; measured beside a timeline. Tables.

The timeline is told one row, the one without any switch, stage by stage; the other rows are predicted from it. Arithmetic; knows no clock.
"""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from gput.bench.timeline import Stages, bounds, one_by_one, overlapped
from gput.bench.travelling import Cell, Half, middle

PATH_COLUMNS = (
    "path", "overlap", "bytes", "seconds", "timeline_s", "miss", "at_least_s", "at_most_s", "seal+open", "gain", "verdict",
)  # fmt: skip
VISIT_COLUMNS = ("mode", "loads_ahead", "bytes", "visit_s", "train_s", "data_s", "gain", "verdict")
CHAIN_COLUMNS = ("chains", "bytes", "data_s", "dependent_steps", "tags", "gain", "verdict")
WORTH = 1.05
"""A gain below this is called none, and so is one where the middle halves of both kinds overlap."""


@dataclass(frozen=True)
class Path:
    """Transfers of one kind: their median seconds, those of the middle half, and sealings and openings of one transfer."""

    name: str
    overlap: bool
    seconds: float
    half: Half
    operations: float


def paths(stages: Stages, records: int, length: int, measured: Sequence[Path]) -> list[dict[str, Any]]:
    """A row for each path; the first is the base of all gains. `stages` are that one's, measured in it."""
    base = measured[0]
    rows = []
    for one in measured:
        own = stages if one.name == "re-encrypt" else Stages(stages.seal, stages.send, 0.0, stages.fixed)
        told = overlapped(own, records) if one.overlap else one_by_one(own, records)
        least, most = bounds(own, records)
        rows.append({
            "path": one.name, "overlap": "on" if one.overlap else "off", "bytes": length, "seconds": _digits(one.seconds),
            "timeline_s": _digits(told), "miss": f"{(told / one.seconds - 1) * 100:+.1f} %", "at_least_s": _digits(least),
            "at_most_s": _digits(most), "seal+open": _digits(one.operations), **_worth(base.seconds, base.half, one.seconds, one.half),
        })  # fmt: skip
    return rows


def visits(cells: Mapping[str, Cell], ahead: Mapping[str, bool]) -> list[dict[str, Any]]:
    """A row for each travel mode: a visit without its training; the first mode is the base."""
    base = next(iter(cells.values()))
    return [
        {
            "mode": mode, "loads_ahead": ahead[mode], "bytes": cell.length, "visit_s": _digits(cell.seconds),
            "train_s": _digits(cell.train_s or 0.0), "data_s": _digits(cell.holder_s or 0.0),
            **_worth(base.seconds, _half(base), cell.seconds, _half(cell)),
        }
        for mode, cell in cells.items()
    ]  # fmt: skip


@dataclass(frozen=True)
class Chained:
    """Visits whose records are of so many MAC chains: bytes of one and the holder's own timers of each. `dependent_steps`: multiplications
    of one record's tag that wait for one another; `tags`: of all records of a visit."""

    chains: int
    length: int
    seconds: Sequence[float]
    dependent_steps: int
    tags: int


def chains(measured: Sequence[Chained]) -> list[dict[str, Any]]:
    """A row for each number of chains; the first, of one chain, is the base."""
    base, base_half = statistics.median(measured[0].seconds), middle(measured[0].seconds)
    rows = []
    for one in measured:
        seconds = statistics.median(one.seconds)
        rows.append({
            "chains": one.chains, "bytes": one.length, "data_s": _digits(seconds), "dependent_steps": one.dependent_steps,
            "tags": one.tags, **_worth(base, base_half, seconds, middle(one.seconds)),
        })  # fmt: skip
    return rows


def named(
    path_rows: Sequence[Mapping[str, Any]],
    visit_rows: Sequence[Mapping[str, Any]],
    chain_rows: Sequence[Mapping[str, Any]] = (),
) -> dict[str, float]:
    """The same as figures by name."""
    found = {f"{row['path']}.overlap-{row['overlap']}.s": float(row["seconds"]) for row in path_rows}
    found |= {f"{row['path']}.overlap-{row['overlap']}.timeline_s": float(row["timeline_s"]) for row in path_rows}
    found |= {f"direct.chains-{row['chains']}.s": float(row["data_s"]) for row in chain_rows}
    return found | {f"{row['mode']}.visit_s": float(row["visit_s"]) for row in visit_rows}


def _half(cell: Cell) -> Half:
    return cell.half or (cell.seconds, cell.seconds)


def _worth(base: float, base_half: Half, seconds: float, half: Half) -> dict[str, Any]:
    if (base, base_half) == (seconds, half):
        return {"gain": 1.0, "middle_half_s": [_digits(end) for end in half], "verdict": "the base"}
    gain = base / seconds if seconds > 0 else float("inf")
    apart = half[1] < base_half[0] or base_half[1] < half[0]
    verdict = "no gain on this machine"
    if apart and not 1 / WORTH <= gain < WORTH:
        verdict = "gain" if gain > 1 else "slower on this machine"
    return {"gain": _digits(gain), "middle_half_s": [_digits(end) for end in half], "verdict": verdict}


def _digits(value: float) -> float:
    return float(f"{value:.4g}")
