"""Two results of one bench, figure by figure: ratio, and whether it is better, worse, or no different. Arithmetic; knows no file.

A figure is *within the spread* where the two sides' runs overlap, and *within the noise* where a side has too few runs to show a spread of
its own and the medians differ by no more than the figure's definition lets one run vary.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from gput.bench.figures import BENCHES, Better, Definition
from gput.bench.result import Figure, Machine, Result
from shared.errors import BadRequest

FEW_RUNS = 3
"""Fewer runs than this show no spread of their own."""
SAME_MEMORY = 0.02


class Verdict(StrEnum):
    """What became of a figure."""

    BETTER = "better"
    WORSE = "worse"
    WITHIN_SPREAD = "within the spread"
    WITHIN_NOISE = "within the noise"
    NOT_JUDGED = "not judged"
    ONLY_OLD = "only in the old one"
    ONLY_NEW = "only in the new one"


@dataclass(frozen=True)
class Change:
    """One figure in both results. `ratio`: new ÷ old, none where the old one is 0. `worse_by`: as a share of the old one, where worse."""

    figure: str
    unit: str
    old: float | None
    new: float | None
    ratio: float | None
    verdict: Verdict
    worse_by: float = 0.0

    def row(self) -> dict[str, Any]:
        """For a table."""
        ratio = None if self.ratio is None else round(self.ratio, 4)
        return {
            "figure": self.figure, "unit": self.unit, "old": self.old, "new": self.new, "ratio": ratio,
            "verdict": self.verdict.value,
        }  # fmt: skip


def compare(old: Result, new: Result) -> list[Change]:
    """Every figure of either, in the old one's order.

    Raises:
        BadRequest `other-bench`: they are of different benches.
    """
    if old.bench != new.bench:
        raise BadRequest(
            f"the old result is of `gput bench {old.bench}`, the new one of `gput bench {new.bench}`", code="other-bench",
            remedy="Compare results of the same bench.",
        )  # fmt: skip
    names = dict.fromkeys((*old.figures, *new.figures))
    return [_change(name, old, new) for name in names]


def _change(name: str, old: Result, new: Result) -> Change:
    before, after = old.figures.get(name), new.figures.get(name)
    if before is None or after is None:
        return _missing(name, before, after)
    bench = BENCHES.get(old.bench)
    definition = bench.definition(name) if bench else None
    ratio = after.median / before.median if before.median else None
    verdict, worse_by = Verdict.NOT_JUDGED, 0.0
    if definition is not None and definition.better is not Better.NEITHER and before.unit == after.unit:
        verdict = _verdict(before, after, definition)
        worse_by = _worse_by(before.median, after.median, definition.better) if verdict is Verdict.WORSE else 0.0
    return Change(name, after.unit, before.median, after.median, ratio, verdict, worse_by)


def _missing(name: str, before: Figure | None, after: Figure | None) -> Change:
    if before is not None:
        return Change(name, before.unit, before.median, None, None, Verdict.ONLY_OLD)
    assert after is not None
    return Change(name, after.unit, None, after.median, None, Verdict.ONLY_NEW)


def _verdict(before: Figure, after: Figure, definition: Definition) -> Verdict:
    fewest, most = sorted((len(before.runs), len(after.runs)))
    if most > 1 and before.least <= after.most and after.least <= before.most:
        return Verdict.WITHIN_SPREAD
    difference = abs(after.median - before.median)
    if difference == 0 or (fewest < FEW_RUNS and difference <= definition.noise * abs(before.median)):
        return Verdict.WITHIN_NOISE
    lower = after.median < before.median
    return Verdict.BETTER if lower is (definition.better is Better.LOWER) else Verdict.WORSE


def _worse_by(before: float, after: float, better: Better) -> float:
    """How much more time, memory, … the new one takes, as a share of what the old one did; of rates, how much more time for the same."""
    small, large = (before, after) if better is Better.LOWER else (after, before)
    return large / small - 1 if small > 0 else float("inf")


def doubts(old: Result, new: Result) -> list[str]:
    """Why the two might not be comparable, each in a line."""
    return [*_parameters(old, new), *_machines(old.machine, new.machine), *_busy(old.machine, new.machine)]


def _parameters(old: Result, new: Result) -> Iterator[str]:
    found = list(_differences(old.parameters, new.parameters))
    if found:
        yield f"other parameters, so the figures are of different work: {'; '.join(found)}"


def _machines(old: Machine, new: Machine) -> Iterator[str]:
    near = abs(old.memory_bytes - new.memory_bytes) <= SAME_MEMORY * max(old.memory_bytes, new.memory_bytes)
    hardware = ("cpu", "cores", *(() if near else ("memory_bytes",)))
    kinds = {"another machine": hardware, "other software": ("kernel", "python", "pytorch")}
    for what, names in kinds.items():
        found = list(_differences(*({name: getattr(one, name) for name in names} for one in (old, new))))
        if found:
            yield f"{what}, so the ratios may be its own: {'; '.join(found)}"


def _busy(old: Machine, new: Machine) -> Iterator[str]:
    for which, one in (("old", old), ("new", new)):
        if one.load_average > one.cores:
            yield f"the {which} one's machine was busy: load average {one.load_average:g} on {one.cores} cores"


def _differences(old: Mapping[str, Any], new: Mapping[str, Any]) -> Iterator[str]:
    for name in dict.fromkeys((*old, *new)):
        if old.get(name) != new.get(name):
            yield f"{name} {old.get(name)} → {new.get(name)}"


def worst(changes: Sequence[Change], percent: float) -> Change | None:
    """The figure that is worse by the most, if that is more than `percent`."""
    found = max(changes, key=lambda one: one.worse_by, default=None)
    return found if found is not None and found.worse_by * 100 > percent else None
