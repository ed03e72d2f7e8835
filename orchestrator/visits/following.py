"""The next visit along with the end of this one: planned in its verdict's commit, granted in its epilogue's frame. Knows no step.

So a stop that is known and whose holder is ready costs no commit and no frame of its own. Its two epochs are durable before the GPU
hears of either, and the region is granted behind its scrub, in one frame (law L2). Where anything else may come between two visits (a
pause, a checkpoint, a held-out check that may end the session), where the travel mode loads ahead, or where the holder is not ready,
the next visit is planned and granted by itself.
"""

from __future__ import annotations

from orchestrator.itinerary import PlannedVisit
from orchestrator.visits.granting import Wanted, want
from orchestrator.visits.planning import plan
from orchestrator.visits.run import Run
from orchestrator.visits.training import Verdict


def plan_following(run: Run, verdict: Verdict) -> Wanted | None:
    """Stage the next visit's plan, if it follows at once and was not planned before, and take its holder's one-time key; None: nothing
    is staged."""
    stop = None if _decides(run, verdict) or run.interrupted() or run.state.ahead is not None else following(run)
    channel = None if stop is None else run.channels.ready(stop.holder)
    if stop is None or channel is None:
        return None
    return want(run, channel, plan(run, stop, behind=run.visit))


def _decides(run: Run, verdict: Verdict) -> bool:
    """Whether this visit's held-out check may end the session, or have its model sealed."""
    rule = run.state.manifest.validation
    if verdict.after is None or rule is None:
        return False
    return rule.patience is not None or rule.release is not None


def following(run: Run) -> PlannedVisit | None:
    """The stop that is next if this visit is closed, where the GPU travels and nothing speaks against planning it before."""
    state, visit = run.state, run.visit
    if not run.travel.away or run.leaving():
        return None
    stop = state.next_stop(visit.index)
    # A stop that was trained on before a reset is a repeat: whether it may be, only the model before it tells.
    if stop is None or stop.index in state.trained:
        return None
    if state.manifest.accumulate is not None and stop.round != visit.round:  # a step comes before it
        return None
    return stop
