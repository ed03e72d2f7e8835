"""The held-out check of the finished model, where its last visit had none: stops behind that were passed over, or not kept.

No visit is open then: there is nothing to roll back to. Knows no holder and no HTTP route.
"""

from __future__ import annotations

from typing import Any

from orchestrator.ledger.log import event_leaf
from orchestrator.sessions.facts import new_fact
from orchestrator.visits.run import Run
from orchestrator.visits.training import check_held_out
from shared.errors import VerificationFailed
from shared.protocol.session import SessionFact


async def last_check(run: Run) -> None:
    """Measure the committed model's held-out loss and write it down, before the model is exported.

    Raises:
        VerificationFailed: code `held-out-check`: the manifest's rule does not accept it, and no better model was kept: the session fails.
        WorkFailed: the validation records do not fit the program. Unavailable: the GPU is gone.
    """
    state, committed = run.state, run.committed
    verdict = await check_held_out(run, f"{state.id}/last-eval/{committed.step}/{run.life.number}")
    if not verdict.accepted and state.best is None:
        raise VerificationFailed(
            f"The finished model does not pass the held-out check: {verdict.reason}", code="held-out-check",
            remedy="Submit it anew with a smaller validation.every_visits, so that such a visit is rolled back, or with release `best`.",
        )  # fmt: skip
    details: dict[str, Any] = {
        "position": state.position, "model": committed.model, "validation_before": verdict.before, "validation_after": verdict.after,
    }  # fmt: skip
    leaf = event_leaf(state.tree, state.id, SessionFact.LAST_CHECKED.value, details)
    run.book.stage(new_fact(SessionFact.LAST_CHECKED, **details, leaf=leaf.fact), leaf.row)
    await run.commit()
