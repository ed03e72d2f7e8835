"""What a session is expected to take, told from its manifest and from visits of earlier sessions here. Pure: knows no table, no clock.

Medians, and nothing between or beyond them: what a step takes is said only where this program was trained here with this batch.
"""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from shared.claims.manifest import Manifest
from shared.protocol.work import Work, control_s, work_of
from shared.wire.estimate import Estimate, HolderEstimate, MeasuredCosts

LEAST_VISITS = 6
"""Fewer do not say what one costs."""
LEAST_CHECKS = 2
"""Held-out checks are far between, and each does the same work."""
LEFT_OUT = "left out: set-up, checkpoints, export, waiting for holders or for the GPU, and visits that are repeated"
MEASURE = "measure first: `gput plan MANIFEST --program FILE` on a machine like this, or a session of few rounds here"


@dataclass(frozen=True)
class Earlier:
    """A session that was here before: its manifest, its GPU, and its closed visits as the API shows them."""

    manifest: Manifest
    gpu: str
    visits: Sequence[Mapping[str, Any]]


def alike(one: Manifest, other: Manifest) -> bool:
    """Whether visits under both cost the same besides their records and steps."""
    return one.travel_mode is other.travel_mode and not _tours(one) and not _tours(other)


def same_work(manifest: Manifest, gpu: str, earlier: Earlier) -> bool:
    """Whether a training step takes as long."""
    other = earlier.manifest
    private = (manifest.privacy is None) == (other.privacy is None)
    return (other.program, other.training.batch_size, earlier.gpu) == (
        manifest.program, manifest.training.batch_size, gpu,
    ) and private  # fmt: skip


def _tours(manifest: Manifest) -> bool:
    return manifest.collect != "visit" or manifest.accumulate is not None


def costs_of(manifest: Manifest, gpu: str, earlier: Iterable[Earlier]) -> MeasuredCosts:
    """Medians of what earlier sessions' visits took, as far as they are like this one's."""
    known = [each for each in earlier if each.visits and alike(manifest, each.manifest)]
    visits = [visit for each in known for visit in each.visits]
    same = [visit for each in known if same_work(manifest, gpu, each) for visit in each.visits]
    checked = [visit for visit in same if visit.get("validation_after") is not None]
    return MeasuredCosts(
        control_s=_median([control_s(visit) for visit in visits]),
        byte_s=_median([_spent(visit, "provision") / visit["length"] for visit in visits if visit.get("length")]),
        step_s=_median([_spent(visit, "train") / visit["steps"] for visit in same if "train" in visit["durations"]]),
        check_s=_median([_spent(visit, "validate") for visit in checked], LEAST_CHECKS),
        visits=len(visits), sessions=len(known), trained_visits=len(same),
    )  # fmt: skip


def _spent(visit: Mapping[str, Any], step: str) -> float:
    return float(visit["durations"].get(step, 0.0))


def _median(seconds: Sequence[float], least: int = LEAST_VISITS) -> float | None:
    return statistics.median(seconds) if len(seconds) >= least else None


def estimate(
    manifest: Manifest, gpu: str, record_bytes: int | None, records: Mapping[str, int], costs: MeasuredCosts
) -> Estimate:
    """Put manifest and costs together.

    Args:
        record_bytes: of the program's records; None: the program is not stored here any more.
        records: how many each holder has that approved.
    """
    works = [work_of(manifest, entry.holder, record_bytes or 0) for entry in manifest.roster]
    holders = [_holder(work, costs, known=record_bytes is not None, records=records.get(work.holder)) for work in works]
    told = [holder.seconds for holder in holders if holder.seconds is not None]
    seconds = sum(told) + _checks(manifest, costs) if len(told) == len(holders) else None
    return Estimate(
        visits=sum(work.visits for work in works), steps=sum(work.steps for work in works),
        bytes=None if record_bytes is None else sum(work.bytes for work in works), seconds=seconds,
        gpu_hours=None if seconds is None else seconds / 3600, holders=holders, costs=costs, basis=_basis(costs, seconds),
        unknown=_unknown(manifest, gpu, record_bytes, costs),
    )  # fmt: skip


def _holder(work: Work, costs: MeasuredCosts, *, known: bool, records: int | None) -> HolderEstimate:
    each = None
    if known and costs.control_s is not None and costs.byte_s is not None and costs.step_s is not None:
        each = costs.control_s + work.bytes_per_visit * costs.byte_s + work.steps_per_visit * costs.step_s
    return HolderEstimate(
        holder=work.holder, visits=work.visits, steps=work.steps, records=work.records, bytes=work.bytes if known else None,
        passes=work.records / records if records else None, seconds_per_visit=each,
        seconds=None if each is None else each * work.visits,
    )  # fmt: skip


def _checks(manifest: Manifest, costs: MeasuredCosts) -> float:
    if manifest.validation is None or costs.check_s is None:
        return 0.0
    visits = manifest.rounds * len(manifest.roster)
    return (1 - (-visits // manifest.validation.every_visits)) * costs.check_s


def _basis(costs: MeasuredCosts, seconds: float | None) -> str:
    if seconds is None:
        return "visits, steps, records and bytes are the manifest's; seconds are not known yet"
    return (
        f"visits, steps, records and bytes are the manifest's; seconds are medians of {costs.visits} visits of {costs.sessions} earlier "
        f"session{'s' if costs.sessions > 1 else ''} here, of {costs.trained_visits} for a training step; {LEFT_OUT}"
    )


def _unknown(manifest: Manifest, gpu: str, record_bytes: int | None, costs: MeasuredCosts) -> list[str]:
    found = []
    if record_bytes is None:
        found.append("bytes: the program is not stored here any more; its owner has it")
    if _tours(manifest):
        return [*found, "seconds: a tour's training lies between its visits, whose times do not tell it; "
                        "`gput plan MANIFEST --session SESSION` reads it off a tour that was"]  # fmt: skip
    if costs.control_s is None or costs.byte_s is None:
        found.append(f"seconds of a visit: earlier sessions here have {costs.visits} closed visits in travel mode "
                     f"{manifest.travel_mode.value}, and {LEAST_VISITS} are needed to tell; {MEASURE}")  # fmt: skip
    if costs.step_s is None:
        found.append(f"seconds of a training step: this program was not trained on {gpu} with a batch of "
                     f"{manifest.training.batch_size} in {LEAST_VISITS} visits before; {MEASURE}")  # fmt: skip
    if manifest.validation is not None and costs.check_s is None:
        found.append("seconds of a held-out check: none was measured, so the sum has none")
    return found
