"""Sessions that the policy approved, or nobody decided, and of which nothing came: whether the orchestrator has them. Ends none itself.

Ids can be made up, and nobody ever says that such a session is over: neither the first of a manifest, nor those that wait behind it, each
of which would be approved in its turn. Asked about is as well whatever stands in front of others of its manifest, were it but to say that
it has ended: who submits a manifest again waits for that. What the orchestrator does not know any more is heard as ended, which is taken
back should it ask for a channel after all.
"""

from __future__ import annotations

from typing import Final

from data_holder.approvals import Approvals
from data_holder.ending import AWAY, ENDS, UNNAMED
from data_holder.ledger import Ledger
from data_holder.links import OrchestratorLink
from data_holder.protocol.state import SessionState
from data_holder.requests import verify_decision
from shared.errors import GputError, NotFound, Unavailable, VerificationFailed
from shared.service.clock import Clock
from shared.service.logging import get_logger
from shared.service.retention import DAY_S
from shared.wire.visit import InboxItem

KEPT_S: Final = 30 * DAY_S
"""For so long a session may take to begin; and as long again it is kept once the orchestrator does not know it."""
UNKNOWN: Final = "unknown-session"
_log = get_logger("data_holder.never_begun")


class NeverBegun:
    """One holder's; asks once a day."""

    def __init__(self, ledger: Ledger, approvals: Approvals, link: OrchestratorLink, clock: Clock) -> None:
        self._ledger, self._approvals, self._link, self._clock = ledger, approvals, link, clock
        self._asked_at = 0.0

    async def ends(self) -> list[InboxItem]:
        """Ends to be heard as if the inbox had said them; no more of them once the orchestrator does not answer. What is wrong with one
        session keeps no other.

        Raises:
            Unavailable: the database is away.
        """
        if abs(self._clock() - self._asked_at) < DAY_S:
            return []
        found = []
        for session, long_enough in (await self._doubtful()).items():
            try:
                phase = await self._phase(session)
                if phase is not None and (long_enough or phase != UNNAMED):
                    found.append(InboxItem(seq=0, kind="ended", session=session, phase=phase))
            except GputError as error:
                _log.info("not known whether a session goes on", session=session, code=error.code)
                if isinstance(error, Unavailable) and error.code != AWAY:  # nor would it answer for the others
                    return found
        self._asked_at = self._clock()
        return found

    async def _phase(self, session: str) -> str | None:
        """In which it ended, as far as there is anything that has ended. Raises: GputError: no answer, or none that says."""
        try:
            view = await self._link.get_json(f"/v1/sessions/{session}", attempts=1)
        except NotFound as error:
            if error.code != UNKNOWN:
                raise
            _log.warning("the orchestrator does not know a session that it asked for", session=session)
            return UNNAMED
        phase = view.get("phase") if isinstance(view, dict) else None
        return phase if phase in ENDS else None

    async def _doubtful(self) -> dict[str, bool]:
        """Those to ask about, and whether nothing came of them for so long that one is over that the orchestrator does not know."""
        since = self._clock() - KEPT_S
        late = dict.fromkeys(await self._late(since), True)
        in_front = self._approvals.once.in_front() - late.keys()
        quiet = await self._ledger.quiet_since(since) if in_front else set()
        return late | {session: session in quiet for session in in_front}

    async def _late(self, since: float) -> list[str]:
        """Those of which nothing came since then; what nobody has decided first, so that none of it follows one that is over."""
        asked = {*await self._approvals.waiting_since(since)}
        open_ones = [state for state in self._ledger.states() if state.ended is None and _came_to_nothing(state)]
        undecided = [state.session for state in open_ones if state.decision is None and state.session in asked]
        return [*undecided, *(state.session for state in open_ones if self._is_late(state, since))]

    def _is_late(self, state: SessionState, since: float) -> bool:
        try:
            said = verify_decision(state, self._approvals.keys)
        except VerificationFailed as error:  # a key of before that signed it is lost
            _log.warning("not known when a session was approved", session=state.session, code=error.code)
            return False
        return said is not None and said.decision == "approve" and said.at <= since


def never_began(state: SessionState) -> bool:
    """Whether all that is kept of it is what was asked, and a policy's word at most, of a session that nobody knew."""
    return state.ended == UNNAMED and _came_to_nothing(state)


def _came_to_nothing(state: SessionState) -> bool:
    by_nobody = state.decision is None or state.decision.by == "policy"
    return by_nobody and not state.channels and not state.receipts
