"""Loading ahead: while the GPU trains on one visit, the next holder fills staging. Knows no step's inside.

Only where the travel mode lets it: a grant of its own over a region of its own, so that no two keys ever write to one place (law L1), and
the GPU's own scrub proof of that region before (law L2). What is loaded is fetched when its turn comes, after the visit under way closed.
"""

from __future__ import annotations

from orchestrator.holders.arrivals import Recall
from orchestrator.visits.abandon import recall
from orchestrator.visits.granting import grant, offer
from orchestrator.visits.planning import plan
from orchestrator.visits.run import Run


async def load_ahead(run: Run) -> None:
    """Plan, grant and offer the stop after the current one, if its holder is ready; nobody is waited for.

    Raises:
        As `grant`, `offer` and `recall`.
    """
    if not run.travel.ahead or run.leaving():
        return
    stop = run.state.next_stop(run.visit.index)
    if stop is None or stop.holder == run.visit.holder:  # it still waits for this visit's receipt
        return
    if (
        run.state.manifest.accumulate is not None and stop.round != run.visit.round
    ):  # a step comes before it, and may be refused
        return
    if stop.index in run.state.trained:  # a repeat after a reset: whether it may be, only the model before it tells
        return
    channel = run.channels.ready(stop.holder)
    if channel is None:
        return
    visit = plan(run, stop, behind=run.visit)
    await run.commit()
    granted = await grant(run, channel, visit)
    try:
        await offer(run, granted)
    except Recall as why:
        await recall(run, why, visit)


async def drop_ahead(run: Run, reason: str) -> None:
    """Recall what is loaded ahead: the model that it was planned on will not come. Its stop is planned anew when it is due.

    Raises:
        As `recall`.
    """
    if run.state.ahead is not None:
        await recall(run, Recall(reason, blame=False), run.state.ahead)
