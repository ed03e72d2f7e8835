"""What this holder does when a session is over: collects its last receipts, proves them, and says that it has them. Knows no visit.

The orchestrator keeps what a holder has not fetched for so long, also of a session that its owner removed; what this holder says here is
how it knows. What is still owed stands in the request's row, so that a restart in between asks again.
"""

from __future__ import annotations

from contextlib import suppress

from data_holder.approvals import STATES, Approvals
from data_holder.ledger import Ledger
from data_holder.links import OrchestratorLink
from data_holder.protocol.state import ENDED
from data_holder.receipt_book import ReceiptBook
from data_holder.requests import verify_decision
from data_holder.tables.schema import REQUESTS
from shared.errors import GputError, NotFound, Unavailable, may_heal
from shared.names import SessionPhase
from shared.protocol.session import SESSION
from shared.service.logging import get_logger
from shared.service.statements import update_row

OWED = "the orchestrator (last receipts)"
AWAY = "session-key-away"
"""The orchestrator cannot read its journal of this session: of one that has ended, not until its old CVM is back."""
GOES_ON = "session-not-ended"
ENDS = frozenset(phase.value for phase in SessionPhase if SESSION.final(phase))
UNNAMED = "ENDED"
"""The end of a session whose phase is none of those: it is kept and shown, and whoever says it may say anything."""
_log = get_logger("data_holder.ending")


class Ending:
    """One holder's ends of sessions; each is told of again and again until it is done."""

    def __init__(self, ledger: Ledger, approvals: Approvals, receipts: ReceiptBook, link: OrchestratorLink) -> None:
        self._ledger, self._approvals, self._receipts, self._link = ledger, approvals, receipts, link

    async def hear(self, session: str, said: str | None) -> None:
        """The session is over: nothing more is served, and what is owed is collected. `said`: in which phase, if it is one of the ends.

        Raises:
            Unavailable: not all could be fetched for now, whatever was answered; to be heard again. Else what did not verify: the end
                stands, and nobody is told that all is well.
        """
        phase = said if said in ENDS else UNNAMED
        if not self._ledger.knows(session):
            # Of a name that means nothing here nothing is kept, also not that it is to be told again: any number can be made up, and an
            # end that is true is said again at the orchestrator's next start.
            with suppress(Unavailable):
                await _tell(self._link.unhurried, session)
            return
        # Anything there is something owed: earlier releases showed other things over it.
        if self._ledger.state(session).ended is not None and await self._approvals.awaiting.shown(session) is None:
            return
        try:
            await self._receipts.fetch_missed(session)
            await self._receipts.prove_inclusion(session)
            await self._approvals.ended(session, phase, OWED)
            await _tell(self._link, session)
        except GputError as error:
            if error.code == GOES_ON:
                await self.taken_back(session)
                return
            await self._approvals.ended(session, phase, OWED if may_heal(error) else None)
            if isinstance(error, Unavailable) and error.code == AWAY:
                _log.warning("last receipts not fetched", session=session, code=error.code)
                return
            if may_heal(error) and not isinstance(error, Unavailable):
                raise Unavailable(error.detail, code=error.code) from error
            raise
        except Exception:  # a fault in this program: what is owed stays owed, and it is heard again
            await self._approvals.ended(session, phase, OWED)
            raise
        # Whoever is cancelled says nothing: the service stops, and hears of the end again at its next start.
        else:
            await self._approvals.ended(session, phase, None)

    async def asked_again(self, session: str) -> None:
        """An approval is wanted: where none was ever given or refused, nobody asks for one of a session that has ended."""
        if self._ledger.state(session).decision is None:
            await self.taken_back(session)

    async def taken_back(self, session: str) -> None:
        """The session goes on although its end was heard: that was said over an old copy of the orchestrator's database, and the newest was
        put back. So it is shown as what was decided, that is said again, it can be vetoed, and is not removed."""
        state = self._ledger.state(session)
        if (heard := state.ended) is None:
            return
        said = verify_decision(state, self._approvals.keys)
        shown = "waiting" if said is None else STATES[said.decision]
        row = {"state": shown, "phase": None, "waiting_for": None, "delivered": False}
        await self._ledger.record(
            session, [(ENDED, {"phase": ""})],
            lambda connection: update_row(connection, REQUESTS, {"session": session}, row),
        )  # fmt: skip
        _log.warning("a session goes on whose end was heard", session=session, phase=heard)


async def _tell(link: OrchestratorLink, session: str) -> None:
    with suppress(NotFound):  # it is removed already, or this orchestrator is of a release that does not ask
        await link.send("PUT", f"/v1/sessions/{session}/end", b"")
