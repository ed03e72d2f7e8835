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
    if body["checkpoint"] is None:  # the first check may be among those that are told by their number alone
        first_checked(state, state.committed)
    _note_best(state, next((made for made in state.checkpoints if made.name == body["checkpoint"]), None), until)


def gone(state: SessionState, body: dict[str, Any]) -> None:
    """Else the next one sealed would have the last whole one forgotten, and its file removed."""
    state.checkpoints = [made for made in state.checkpoints if made.name not in body["checkpoints"]]


def checkpointed(state: SessionState, body: dict[str, Any]) -> None:
    made = Checkpoint(body["name"], body["position"], body["total"], ModelState(**body["model"]), body["seconds"])
    state.checkpoints = [*state.checkpoints[-1:], made]
    going_back.noted(state, made.name)
    _note_best(state, made, made.position)
    if (
        state.committed is not None and state.committed.optimiser is None
    ):  # the very state that was sealed: now it is named
        state.committed = replace(state.committed, optimiser=made.state.optimiser)
    oldest = going_back.farthest(state).position
    state.trained = {index: model for index, model in state.trained.items() if index > oldest}
    state.checks = needed(state.checks, _farthest_check(state))


def to_release(state: SessionState) -> list[Checkpoint]:
    """The sealed models of which one may be released, though newer ones be sealed: the best one last."""
    return [one for one in (state.best_before, state.best) if one is not None]


def _note_best(state: SessionState, made: Checkpoint | None, until: int) -> None:
    """`made` was sealed or restored, and has the checks up to stop `until` behind it. Besides the best model the one is kept that was it
    where a restore goes back to at most: if the best one's file is damaged, its stop need not come again, as after a veto."""
    found = [one for one in to_release(state) if one.position <= until]
    if made is not None and state.releases_best and newly_best(state.checks, made.position):
        found.append(made)
    farthest = _farthest_check(state)
    state.best = found[-1] if found else None
    before = next((one for one in reversed(found) if one.position <= farthest), None)
    state.best_before = None if before is state.best else before


def _farthest_check(state: SessionState) -> int:
    """The last stop whose check stays behind the session's model, whichever checkpoint it goes back to."""
    if not state.checkpoints:
        return 0
    oldest = going_back.farthest(state)
    return checked_until(oldest.position, oldest.state)


def best_restored(state: SessionState, body: dict[str, Any]) -> None:
    if state.best is not None:
        state.committed = state.best.state
