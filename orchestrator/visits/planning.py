"""Step 1, plan: the visit's record, written before any outward act. Knows no GPU and no holder."""

from __future__ import annotations

from orchestrator.ids import new_visit_id
from orchestrator.itinerary import PlannedVisit
from orchestrator.sessions.facts import new_fact
from orchestrator.sessions.visit_state import VisitState
from orchestrator.visits.run import Run, Stopwatch
from shared.protocol.visit import VisitFact


def plan(run: Run, stop: PlannedVisit, behind: VisitState | None = None) -> VisitState:
    """Stage the visit's record; the visit. `behind`: the visit under way, where this one is planned ahead of its turn.

    Two epochs are reserved here, for the grant and for its fence: a number that the GPU might have seen is in the journal first.
    `first_step` is the committed step, or the one that the visit under way will commit, so skipped stops leave no gap in the
    optimiser's count.
    """
    if behind is None:
        run.watch = Stopwatch(run.timer)
    with run.watch.step("plan"):
        state, placement, visit = run.state, run.placement, new_visit_id(run.entropy)
        again = behind is None and stop.index - 1 == state.position
        taken = behind is not None and behind.region == placement.dataset_region and run.travel.ahead
        run.book.stage(
            new_fact(
                VisitFact.PLANNED, visit=visit, round=stop.round, index=stop.index,
                attempt=state.attempts + 1 if again else 1, holder=stop.holder, cursor=stop.cursor.model_dump(mode="json"),
                records=stop.cursor.count, steps=stop.steps, ahead=behind is not None,
                first_step=run.committed.step if behind is None else behind.first_step + behind.steps,
                epoch=state.last_epoch + 1, fence_epoch=state.last_epoch + 2,
                region=_region_of(run, stop) if placement.tour_regions
                else placement.ahead_region if taken else placement.dataset_region,
            )
        )  # fmt: skip
    planned = state.open_visit(visit)
    key = next(entry.key for entry in run.state.manifest.roster if entry.holder == planned.holder)
    run.arrivals.plan(visit, planned.holder, planned.epoch, key)
    return planned


def _region_of(run: Run, stop: PlannedVisit) -> int:
    roster = [entry.holder for entry in run.state.manifest.roster]
    return run.placement.tour_regions[roster.index(stop.holder)]
