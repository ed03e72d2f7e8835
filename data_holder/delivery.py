"""A stored decision's way to the orchestrator: sent until it is answered, and shown as delivered from then on. Makes no decision."""

from __future__ import annotations

from base64 import b64encode
from typing import Final

from sqlalchemy import Connection, update

from data_holder.ledger import Ledger
from data_holder.links import OrchestratorLink, document
from data_holder.tables import rows
from data_holder.tables.schema import REQUESTS
from shared.errors import GputError, may_heal
from shared.service.logging import get_logger
from shared.service.store import Store
from shared.wire.visit import Signed

_REFUSED: Final = "nobody: the orchestrator answered"
_log = get_logger("data_holder.delivery")


class Delivery:
    """Of the newest decision on each session."""

    def __init__(self, ledger: Ledger, store: Store, link: OrchestratorLink) -> None:
        self._ledger, self._store, self._link = ledger, store, link

    async def send(self, session: str) -> None:
        """Send the stored decision; the same bytes again do no harm.

        Raises:
            GputError: one that `may_heal`; call again later. Any other answer ends the attempts and is shown in `waiting_for`.
        """
        decision = self._ledger.state(session).decision
        if decision is None:
            return
        signed = Signed(
            document=b64encode(decision.document).decode(), signature=b64encode(decision.signature).decode()
        )
        whom: str | None = None
        try:
            await self._link.send("POST", f"/v1/sessions/{session}/approvals", document(signed))
        except GputError as error:
            if may_heal(error):
                raise
            _log.error("the orchestrator did not accept the decision", session=session, code=error.code)
            whom = f"{_REFUSED} {error.code}"

        def note(connection: Connection) -> None:
            # A veto may have been decided while the answer was under way: that one was not delivered.
            state = self._ledger.state(session)
            if state.decision is decision:
                shown = {"waiting_for": whom} if state.ended is None else {}  # an ended one shows what is owed
                mine = REQUESTS.c.session == session
                if whom is None:
                    # Said once more it is no news, and what the session waits for since then stays shown; but not that nobody took it.
                    mine &= REQUESTS.c.delivered.is_(False) | REQUESTS.c.waiting_for.startswith(_REFUSED)
                connection.execute(update(REQUESTS).where(mine).values(delivered=True, **shown))

        await self._ledger.record(session, [], note)  # never between a decision's commit and its state in memory

    async def undelivered(self) -> list[str]:
        """Sessions whose decision the orchestrator does not have yet."""
        return await self._store.read(rows.undelivered)
