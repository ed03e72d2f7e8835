"""Sessions that the policy approved and of which nothing came: whether the orchestrator still has them. Ends none itself.

Ids can be made up, and nobody ever says that such a session is over. What the orchestrator does not know any more is heard as ended, which
is taken back should it ask for a channel after all.
"""

from __future__ import annotations

from typing import Final

from data_holder.approvals import Approvals
from data_holder.ending import ENDS, UNNAMED
from data_holder.ledger import Ledger
from data_holder.links import OrchestratorLink
from data_holder.protocol.state import SessionState
from data_holder.requests import verify_decision
from shared.errors import GputError, NotFound
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
        """Ends to be heard as if the inbox had said them; none while the orchestrator does not answer.

        Raises:
            VerificationFailed: a stored decision is not this holder's.
        """
        if abs(self._clock() - self._asked_at) < DAY_S:
            return []
        found = []
        for session in [state.session for state in self._ledger.states() if self._is_late(state)]:
            try:
                if (phase := await self._phase(session)) is not None:
                    found.append(InboxItem(seq=0, kind="ended", session=session, phase=phase))
            except GputError as error:
                _log.info("not known whether a session goes on", session=session, code=error.code)
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
            _log.warning("the orchestrator does not know a session that was approved and never began", session=session)
            return UNNAMED
        phase = view.get("phase") if isinstance(view, dict) else None
        return phase if phase in ENDS else None

    def _is_late(self, state: SessionState) -> bool:
        if state.ended is not None or not _by_policy_alone(state):
            return False
        said = verify_decision(state, self._approvals.keys)
        return said is not None and said.decision == "approve" and said.at <= self._clock() - KEPT_S


def never_began(state: SessionState) -> bool:
    """Whether all that is kept of it is a policy's word on a session that nobody knew."""
    return state.ended == UNNAMED and _by_policy_alone(state)


def _by_policy_alone(state: SessionState) -> bool:
    return not state.channels and not state.receipts and state.decision is not None and state.decision.by == "policy"
