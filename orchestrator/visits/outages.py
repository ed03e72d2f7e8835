"""How often a visit is made once more because the GPU's compute processes died under its work. Knows no GPU.

Nobody's records are to blame, and to leave a visit out for it would let who can kill a process choose whose records the model learns from.
But a program may kill its own process, and must not do so for ever.
"""

from __future__ import annotations

from collections.abc import Sequence

from orchestrator.sessions.visit_state import VisitState
from orchestrator.visits.run import Run
from orchestrator.visits.training import WorkFailed
from shared.errors import GputError


def require_again(run: Run, visits: Sequence[VisitState], error: GputError) -> None:
    """Visits whose work has just been lost may be made once more.

    Raises:
        WorkFailed: code `work-lost`: it was lost as often as a visit may be attempted; the session must fail.
    """
    lost = 1 + max(run.state.outages.get(visit.index, 0) for visit in visits)
    if lost < run.visit_attempts:
        return
    raise WorkFailed(
        f"Visit {visits[-1].index} lost its work in the GPU {lost} times: {error.detail}", code="work-lost",
        remedy="Look for the cause in the GPU agent's log; what goes on goes on from the session's newest checkpoint, if it has one.",
    )  # fmt: skip
