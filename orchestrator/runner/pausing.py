"""A session that its owner paused: until somebody says otherwise, or it was paused for as long as it may be. Knows no GPU."""

from __future__ import annotations

from orchestrator.runner.wishes import Wishes
from orchestrator.sessions.book import Book
from orchestrator.sessions.facts import failed
from orchestrator.sessions.state import SessionState
from orchestrator.sessions.views import paused_until
from orchestrator.visits.abandon import forsake_open
from shared.claims.succession import may_have_successor
from shared.errors import Conflict
from shared.names import SessionPhase
from shared.service.clock import Clock
from shared.service.logging import get_logger

_log = get_logger("runner")
LOOK_S = 3600.0
"""A paused session looks at the clock so often at least, however it was set meanwhile."""


def pause_over(state: SessionState, limit_s: float) -> Conflict:
    """What a session that nobody resumed in time ends with."""
    goes_on = f"Go on from its sealed checkpoint in a session of its own: `gput session succeed {state.id}`."
    none_does = "Submit a new session; none can go on with the model of this one, as its manifest says."
    return Conflict(
        f"It was not resumed within the {limit_s:g} s that a session may stay paused here (pause_limit_s)", code="pause-limit",
        remedy=goes_on if may_have_successor(state.manifest) else none_does,
    )  # fmt: skip


async def stand_still(book: Book, wishes: Wishes, limit_s: float, clock: Clock) -> None:
    """Until its owner says otherwise, or the pause has lasted as long as it may: then the session ends and others have the GPU."""
    while book.state.phase is SessionPhase.PAUSED and not (wishes.cancel or wishes.stop):
        seen = book.changes.version
        book.require_open()
        # The journal's time: a restart neither forgets the pause nor begins it anew.
        until = paused_until(book.state.paused_at, limit_s)
        left = LOOK_S if until is None else until - clock()
        if left <= 0:
            # Looked at and staged in one go: a resume comes before it, or is told that the session has ended.
            over = pause_over(book.state, limit_s)
            forsake_open(book, "its session failed")
            await book.record(failed(over))
            _log.warning("session failed", session=book.state.id, code=over.code, detail=over.detail)
            return
        await book.changes.wait(seen, min(left, LOOK_S))
