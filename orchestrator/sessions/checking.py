"""What a held-out check does to a session's state: when the next one is due, and what is known of the model. Knows no storage.

A fact says what a check found; whether one is due, the state answers (`check_due`).
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from orchestrator.sessions.remembered import ModelState
from orchestrator.sessions.stopping import added

if TYPE_CHECKING:
    from orchestrator.sessions.state import SessionState


def checked(state: SessionState, position: int, loss: float | None) -> None:
    """The model has learnt; `loss`: what the check found then, if there was one."""
    state.checked_at, state.unchecked = state.checked_at if loss is None else position, loss is None
    rule = state.manifest.validation
    if rule is not None and (rule.patience is not None or rule.release is not None):
        state.checks = added(state.checks, position, loss)


def first_checked(state: SessionState, model: ModelState) -> None:
    """The session stands at its first model, which was made with its check and has no other behind it."""
    state.checks = []
    checked(state, 0, model.validation)
    state.unchecked = False  # nothing was learnt yet


def last_checked(state: SessionState, body: dict[str, Any]) -> None:
    """Nothing was learnt since; also a loss that is no number was looked at."""
    checked(state, state.position, body["validation_after"])
    state.unchecked = False
    if state.committed is not None:
        state.committed = replace(state.committed, validation=body["validation_after"])


def checked_until(position: int, model: ModelState) -> int:
    """The last stop whose check a model has behind it. The check of a round that it still accumulates is of the model after the step."""
    return position - 1 if model.batches else position
