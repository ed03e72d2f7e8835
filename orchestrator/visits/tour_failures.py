"""A tour's end that the GPU fails to make: written down, tried again in a new life, and failed often enough the session's end.

No holder's records took part, so nobody is to blame and nothing can be left out. Knows no GPU.
"""

from __future__ import annotations

from typing import Any

from orchestrator.ledger.log import event_leaf
from orchestrator.sessions.facts import new_fact
from orchestrator.visits.run import Run
from orchestrator.visits.training import WorkFailed
from shared.errors import GputError, Unavailable
from shared.protocol.session import SessionFact


async def tour_failed(run: Run, round_number: int, error: WorkFailed) -> GputError:
    """Commit the failure as a leaf of the log; what to raise of it.

    Returns:
        Unavailable: this life is over, the next one tries again. WorkFailed `tour-failed`: it failed as often as a visit may.
    """
    state = run.state
    attempt = state.tour_failures.get(round_number, 0) + 1
    details: dict[str, Any] = {"round": round_number, "attempt": attempt, "code": error.code}
    leaf = event_leaf(state.tree, state.id, SessionFact.TOUR_FAILED.value, details)
    run.book.stage(new_fact(SessionFact.TOUR_FAILED, **details, detail=error.detail, leaf=leaf.fact), leaf.row)
    await run.commit()
    if attempt < run.visit_attempts:
        return Unavailable(f"the tour's end failed in the GPU: {error.detail}", code=error.code)
    return WorkFailed(
        f"The end of round {round_number}'s tour failed {attempt} times in the GPU: {error.detail}", code="tour-failed",
        remedy="Look for the cause in the GPU agent's log, then submit a new session: with `accumulate` none can go on with this one.",
    )  # fmt: skip
