"""Whether a session takes its owner's pause, resume or cancel as it stands: for who does it, and for who only asks. Stages nothing."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Final

from orchestrator.sessions.state import SessionState
from shared.errors import Conflict
from shared.names import SessionPhase


def pauses(state: SessionState) -> bool:
    """Whether a pause says anything new. Raises: Conflict `not-running`."""
    if state.phase is SessionPhase.PAUSED:
        return False
    if state.phase is not SessionPhase.RUNNING:
        raise Conflict(f"A session that is {state.phase.value} cannot be paused", code="not-running")
    return not state.pause_asked


def resumes(state: SessionState) -> bool:
    """Whether a resumption says anything new; it takes back a pause that was asked and has not begun. Raises: Conflict `not-paused`."""
    if state.phase is SessionPhase.RUNNING:
        return state.pause_asked
    if state.phase is not SessionPhase.PAUSED:
        raise Conflict(f"A session that is {state.phase.value} cannot be resumed", code="not-paused")
    return True


def cancels(state: SessionState) -> bool:
    """Whether a cancellation says anything new. Raises: Conflict `session-ended`: it has ended otherwise."""
    if state.phase is SessionPhase.CANCELLED:
        return False
    if state.ended:
        raise Conflict(f"The session has ended ({state.phase.value})", code="session-ended")
    return not state.cancel_asked


WORDS: Final[Mapping[str, Callable[[SessionState], bool]]] = MappingProxyType(
    {"pause": pauses, "resume": resumes, "cancel": cancels}
)
"""By the name of the act."""
