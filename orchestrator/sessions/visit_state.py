"""One visit as the journal tells it: the visit's phase, then its training phase. Knows no storage and no wire."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from orchestrator.visit_steps import in_order
from shared.names import Role, TrainingPhase, VisitPhase
from shared.protocol.training import TRAINING, TrainingFact
from shared.protocol.visit import VISIT, VisitFact

_OUTCOMES = {"closed", "rejected", "recalled", "quarantined", "lost"}
_SHOWN = ("bytes_sent", "link", "length", "commitment", "timers", "validation_before", "validation_after", "mean_loss",
          "losses_released", "reason", "durations")  # fmt: skip


@dataclass
class VisitState:
    """`details` collects what each fact's body added; later facts win."""

    id: str
    round: int
    index: int
    attempt: int
    holder: str
    cursor: dict[str, Any]
    records: int
    first_step: int
    steps: int
    epoch: int
    fence_epoch: int
    region: int
    number: int
    planned_at: float
    phase: VisitPhase = VisitPhase.PLANNED
    training: TrainingPhase | None = None
    outcome: str | None = None
    closed_at: float | None = None
    receipt: int | None = None
    details: dict[str, Any] = field(default_factory=dict)

    @classmethod
    def planned(cls, body: dict[str, Any], number: int, at: float) -> VisitState:
        """From the body of `visit.planned`."""
        names = (
            "round",
            "index",
            "attempt",
            "holder",
            "cursor",
            "records",
            "first_step",
            "steps",
            "epoch",
            "fence_epoch",
            "region",
        )
        return cls(id=body["visit"], number=number, planned_at=at, **{name: body[name] for name in names})

    def move(self, machine: str, fact: str, by: Role, body: dict[str, Any], at: float) -> None:
        """Apply one fact of the visit's or the training phase's table. Raises: ProtocolViolation, and nothing changed."""
        if machine == "visit":
            self.phase = VISIT.after(self.phase, VisitFact(fact), by)
            if self.phase is VisitPhase.VERIFIED:
                self.training = TRAINING.initial
        else:
            self.training = TRAINING.after(self.training or TRAINING.initial, TrainingFact(fact), by)
        self.details.update({key: value for key, value in body.items() if key not in ("by", "visit", "visits")})
        if fact in _OUTCOMES:
            self.outcome, self.closed_at = fact, at
        if fact in ("closed", "rejected"):
            self.receipt = body["leaf"]["index"]

    @property
    def shown_phase(self) -> str:
        """The training phase once there is one, the visit's before."""
        return (self.training or self.phase).value

    def view(self, session: str) -> dict[str, Any]:
        """What the visit's row and page say; per-step losses are apart (release rule)."""
        shown = {key: self.details.get(key) for key in _SHOWN}
        return {
            "id": self.id, "session": session, "round": self.round, "index": self.index, "attempt": self.attempt,
            "holder": self.holder, "phase": self.shown_phase, "epoch": self.epoch, "fence_epoch": self.fence_epoch, "cursor": self.cursor,
            "first_step": self.first_step, "steps": self.steps, "records": self.records, "outcome": self.outcome,
            "receipt": self.receipt, "planned_at": self.planned_at, "closed_at": self.closed_at,
            **shown, "losses_released": bool(shown["losses_released"]), "durations": in_order(shown["durations"]),
        }  # fmt: skip
