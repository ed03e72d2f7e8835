"""Saying which log head and receipt this holder remembers, whenever a start of the orchestrator asks. Knows no GPU and no channel.

The answer is read from the journal and nothing else: a head is committed there before the offer that showed it is acted upon. It is
given for any session ever offered here, also a vetoed or ended one: an orchestrator that asks about those has forgotten something.
"""

from __future__ import annotations

from data_holder.approvals import Approvals
from data_holder.ledger import Ledger
from data_holder.links import OrchestratorLink, document
from data_holder.protocol.state import RememberedHead
from shared.attestation.head_statements import sign_head_statement
from shared.crypto.signing import PartyKey
from shared.errors import GputError, NotAuthenticated, Unavailable
from shared.protocol.merkle import EMPTY_ROOT

NOTHING = RememberedHead(0, EMPTY_ROOT)


class HeadStatements:
    """Challenges that wait for this holder's answer, by session: `unanswered`. A newer one replaces the older."""

    def __init__(self, *, key: PartyKey, ledger: Ledger, approvals: Approvals, link: OrchestratorLink) -> None:
        self._key, self._ledger, self._approvals, self._link = key, ledger, approvals, link
        self.unanswered: dict[str, str] = {}

    async def answer(self, session: str, challenge: str) -> None:
        """Sign and send; unanswered until the orchestrator has heard it. A veto that it seems to have forgotten is said again first.

        Raises:
            NotFound: the session was never offered here. Unavailable, NotAuthenticated: call again later. Any other answer ends it.
        """
        state = self._ledger.state(session)
        head, newest = state.head or NOTHING, state.newest_receipt
        self.unanswered[session] = challenge
        signed = sign_head_statement(
            self._key, session=session, holder=self._approvals.name, challenge=challenge, size=head.size, root=head.root,
            receipt=None if newest is None else newest.leaf,
        )  # fmt: skip
        try:
            await self._approvals.remind(session)
            await self._link.send("POST", f"/v1/sessions/{session}/heads", document(signed))
        except (Unavailable, NotAuthenticated):
            raise  # not there, or this holder is not enrolled yet: both may heal
        except GputError:
            self._done(session, challenge)
            raise
        self._done(session, challenge)

    def _done(self, session: str, challenge: str) -> None:
        if self.unanswered.get(session) == challenge:
            del self.unanswered[session]
