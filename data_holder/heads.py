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
from shared.errors import GputError, may_heal
from shared.protocol.merkle import EMPTY_ROOT
from shared.wire.visit import Signed

NOTHING = RememberedHead(0, EMPTY_ROOT)


class HeadStatements:
    """`unanswered`: by session, the newest challenge whose answer the orchestrator has not heard."""

    def __init__(self, *, key: PartyKey, ledger: Ledger, approvals: Approvals, link: OrchestratorLink) -> None:
        self._key, self._ledger, self._approvals, self._link = key, ledger, approvals, link
        self.unanswered: dict[str, str] = {}
        self._sending: set[str] = set()

    async def asked(self, session: str, challenge: str) -> None:
        """A start asks: answer now. Raises: NotFound: the session was never offered here; else as `answer`."""
        self._ledger.state(session)
        self.unanswered[session] = challenge
        await self.answer(session)

    async def answer(self, session: str) -> None:
        """Sign and send, unless that is under way. A veto that the orchestrator seems to have forgotten is said again first.

        Raises:
            GputError: where it `may_heal` it stays unanswered, call again. Any other answer of the orchestrator ends it.
        """
        challenge = self.unanswered.get(session)
        if challenge is None or session in self._sending:
            return
        self._sending.add(session)
        try:
            await self._approvals.remind(session)
            await self._link.send(
                "POST", f"/v1/sessions/{session}/heads", document(self._statement(session, challenge))
            )
        except GputError as error:
            if not may_heal(error):
                self._done(session, challenge)
            raise
        else:
            self._done(session, challenge)
        finally:
            self._sending.discard(session)

    def _statement(self, session: str, challenge: str) -> Signed:
        state = self._ledger.state(session)
        head, newest = state.head or NOTHING, state.newest_receipt
        return sign_head_statement(
            self._key, session=session, holder=self._approvals.name, challenge=challenge, size=head.size, root=head.root,
            receipt=None if newest is None else newest.leaf,
        )  # fmt: skip

    def _done(self, session: str, challenge: str) -> None:
        if self.unanswered.get(session) == challenge:
            del self.unanswered[session]
