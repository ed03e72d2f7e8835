"""A visit's trace at the orchestrator: the visit as a span, its steps below. Knows durable facts, no step's inside."""

from __future__ import annotations

from orchestrator.metrics import OUTCOMES
from orchestrator.sessions.watching import Noted
from orchestrator.visit_steps import in_order
from shared.service.tracing import Place, Tracing


class VisitSpans:
    """Makes the spans of a visit once its outcome is durable; of a collected tour's visit also what its own part took."""

    def __init__(self, tracing: Tracing) -> None:
        self._tracing = tracing

    def noted(self, noted: Noted) -> None:
        """One fact is durable."""
        machine, _, name = noted.kind.partition(".")
        visit, body = noted.body.get("visit"), noted.body
        if machine not in ("visit", "training") or visit is None:
            return
        place, durations = Place.of_visit(visit), in_order(body.get("durations"))
        self._tracing.steps(place, "orchestrator.", durations, noted.at)
        if name in OUTCOMES:
            about = {
                "session": noted.session,
                "visit": visit,
                "outcome": name,
                "round": body.get("round"),
                "attempt": body.get("attempt"),
            }
            began = noted.at - sum(durations.values())
            self._tracing.span(
                place, None, "visit", began, noted.at, **{f"gput.{key}": value for key, value in about.items()}
            )
