"""What tours change in a plan: what their ends cost, told from visits that were made; what is assumed where none were; what length means
for quality. Knows no clock, file or service.

A visit of a collected tour carries records and trains nothing; its round's steps follow at the tour's end. A visit that accumulates trains
on its batches, and the round ends with one step of the optimiser.
"""

from __future__ import annotations

import dataclasses
import itertools
import statistics
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from gput.planning import RECENCY, Costs, Visit, Work, calibrate
from gput.tours import Tours

_QUALITY = {
    None: RECENCY,
    Tours.COLLECT: (
        "A round is trained on as one shuffled mixture, so no length of visits favours anybody: the model is that of pooled training in "
        "the same order. Longer visits mix more records; they take more of the GPU's memory, and more is lost with a tour that is dropped."
    ),
    Tours.ACCUMULATE: (
        "A round is one step of the optimiser, with the mean gradient of all its batches, so no length of visits favours anybody. But the "
        "same records in longer visits are fewer, larger steps: rounds is how many there are."
    ),
}
_ORDINARY = "costs are those of visits that train when they come"
_ASSUMED = {
    Tours.COLLECT: (
        "no tour was measured: a visit is taken to cost what an ordinary one does without its training, though the visits of a tour share "
        "verdict, scrub and receipts; a tour's end is taken to cost what an ordinary training costs besides its steps"
    ),
    Tours.ACCUMULATE: (
        "no tour was measured: a batch is taken to last as long as a step, whose optimiser it leaves out; a tour's end is taken to cost "
        "what a visit does that carries nothing"
    ),
}
_MEASURED = "a tour's end was measured, with its held-out check where one was due"
Views = Iterable[Mapping[str, Any]]


def quality(work: Work) -> str:
    """What the length of visits means for the model."""
    return _QUALITY[work.tours]


def assumed(costs: Costs, work: Work, steps_per_visit: int | None) -> list[str]:
    """What a plan rests on besides its costs.

    Args:
        steps_per_visit: the recommended ones, None: none are.
    """
    if work.tours is None:
        return [_ORDINARY]
    found = [_ASSUMED[work.tours] if costs.tour_s is None else _MEASURED]
    if work.tours is Tours.ACCUMULATE:
        return [*found, "a step is a batch here; the GPU needs memory for one more model"]
    steps = steps_per_visit or work.longest
    buffers = f"the GPU needs a buffer for each holder: at {steps} steps a visit {work.holders} of {steps * work.step_bytes} bytes"
    return [*found, buffers]


def calibrate_tours(views: Views, tours: Tours | None, step_s: float | None = None) -> Costs:
    """As `calibrate`, of closed visits as the orchestrator's API shows them, all of them in sessions of such tours.

    Raises:
        BadRequest: as `calibrate`; of collected tours two lengths are needed of tours, not of visits.
    """
    known = list(views)
    visits = [Visit.of(view) for view in known]
    if tours is None or not visits:
        return calibrate(visits, step_s)
    rounds = _rounds(known)
    if tours is Tours.COLLECT:
        trained = [(sum(view["steps"] for view in tour), _after(tour[-1])) for tour in rounds]
        found = calibrate(visits, step_s, trained)
        return dataclasses.replace(found, train_fixed_s=0.0, check_s=0.0, tour_s=found.train_fixed_s)
    return dataclasses.replace(calibrate(visits, step_s), check_s=0.0, tour_s=_ends(rounds))


def _rounds(views: Views) -> list[list[Mapping[str, Any]]]:
    """Visits of one round of one session, in the order of their planning; the rounds of a session in order."""
    found: dict[tuple[str, int], list[Mapping[str, Any]]] = defaultdict(list)
    for view in sorted(views, key=lambda view: (view["session"], view["round"], view["planned_at"])):
        found[view["session"], view["round"]].append(view)
    return list(found.values())


def _after(view: Mapping[str, Any]) -> float:
    """Seconds from a visit's own last step to its close; what its stopwatch read before it was planned is not among them."""
    spent = sum(seconds for name, seconds in view["durations"].items() if name != "plan")
    return max(0.0, float(view["closed_at"] - view["planned_at"] - spent))


def _ends(rounds: Sequence[Sequence[Mapping[str, Any]]]) -> float | None:
    """What lies between two rounds over what lies between two visits of one; None where no session had two rounds."""
    inside = [_between(one, two) for tour in rounds for one, two in itertools.pairwise(tour)]
    ends = [
        _between(one[-1], two[0]) for one, two in itertools.pairwise(rounds) if one[0]["session"] == two[0]["session"]
    ]
    if not ends:
        return None
    return max(0.0, statistics.median(ends) - (statistics.median(inside) if inside else 0.0))


def _between(one: Mapping[str, Any], two: Mapping[str, Any]) -> float:
    return max(0.0, float(two["planned_at"] - one["closed_at"]))
