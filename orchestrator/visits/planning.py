"""Step 1, plan: the visit's record, written before any outward act. Knows no GPU and no holder."""

from __future__ import annotations

from orchestrator.ids import new_visit_id
from orchestrator.itinerary import PlannedVisit
from orchestrator.sessions.facts import new_fact
from orchestrator.visits.run import Run, Stopwatch
from shared.protocol.visit import VisitFact


def plan(run: Run, stop: PlannedVisit) -> None:
    """Stage the visit's record.

    Two epochs are reserved here, for the grant and for its fence: a number that the GPU might have seen is in the journal first.
    `first_step` is the committed step, so skipped stops leave no gap in the optimiser's count.
    """
    run.watch = Stopwatch(run.timer)
    with run.watch.step("plan"):
        state = run.state
        again = stop.index - 1 == state.position
        run.book.stage(
            new_fact(
                VisitFact.PLANNED, visit=new_visit_id(run.entropy), round=stop.round, index=stop.index,
                attempt=state.attempts + 1 if again else 1, holder=stop.holder, cursor=stop.cursor.model_dump(mode="json"),
                records=stop.cursor.count, first_step=run.committed.step, steps=stop.steps,
                epoch=state.last_epoch + 1, fence_epoch=state.last_epoch + 2, region=run.placement.dataset_region,
            )
        )  # fmt: skip
