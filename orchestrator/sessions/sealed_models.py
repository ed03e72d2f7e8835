"""What a sealed model, and going back to one, does to a session's state: which are kept, and which is to be released. Knows no storage."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from orchestrator.sessions import going_back
from orchestrator.sessions.checking import checked_until, first_checked
from orchestrator.sessions.remembered import Checkpoint, ModelState
from orchestrator.sessions.stopping import gone_back, needed, newly_best

if TYPE_CHECKING:
    from orchestrator.sessions.state import SessionState


def restored(state: SessionState, body: dict[str, Any]) -> None:
    state.committed = ModelState(**body["model"])
    state.position, state.attempts, state.blamed = body["position"], 0, 0
    going_back.gone_back_to(state, body["checkpoint"])
    until = checked_until(state.position, state.committed)
    state.checks, state.chosen, state.stopped = gone_back(state.checks, until), False, ""
    if state.best is not None and state.best.position > until:
        state.best = None
    if body["checkpoint"] is None:  # the first check may be among those that are told by their number alone
        first_checked(state, state.committed)
    _noted(state, next((made for made in state.checkpoints if made.name == body["checkpoint"]), None))


def checkpointed(state: SessionState, body: dict[str, Any]) -> None:
    made = Checkpoint(body["name"], body["position"], body["total"], ModelState(**body["model"]), body["seconds"])
    state.checkpoints = [*state.checkpoints[-1:], made]
    going_back.noted(state, made.name)
    _noted(state, made)
    if (
        state.committed is not None and state.committed.optimiser is None
    ):  # the very state that was sealed: now it is named
        state.committed = replace(state.committed, optimiser=made.state.optimiser)
    oldest = going_back.farthest(state)
    state.trained = {index: model for index, model in state.trained.items() if index > oldest.position}
    state.checks = needed(state.checks, checked_until(oldest.position, oldest.state))


def _noted(state: SessionState, made: Checkpoint | None) -> None:
    if made is not None and state.releases_best and newly_best(state.checks, made.position):
        state.best = made


def best_restored(state: SessionState, body: dict[str, Any]) -> None:
    if state.best is not None:
        state.committed = state.best.state
