"""What this holder keeps of finished sessions, receipts included, goes when it was kept long enough. Knows no HTTP.

A session that has not ended, or whose end was never heard of, stays; so does one whose journal is refused. One that never began, and that
no orchestrator knew, has no receipts and goes sooner. What was converted of files goes with them.
"""

from __future__ import annotations

import sqlalchemy as sa
from sqlalchemy import Connection

from data_holder.catalogue import Catalogue
from data_holder.commitments import Commitments
from data_holder.ledger import VOCABULARY, Ledger
from data_holder.never_begun import KEPT_S, never_began
from data_holder.protocol.state import ENDED
from data_holder.tables.schema import PURGES, RECEIPTS, REQUESTS, SHARES, VISITS
from shared.service.clock import Clock
from shared.service.logging import get_logger
from shared.service.retention import Purges
from shared.service.steady_clock import SteadyClock
from shared.service.store import Store
from shared.service.tables import JOURNAL

_log = get_logger("retention")


class Retention:
    """One holder's; `sweep` is called again and again once its journal is open."""

    def __init__(
        self, store: Store, ledger: Ledger, commitments: Commitments, catalogue: Catalogue, clock: Clock, keep_s: float
    ) -> None:
        self._store, self._ledger, self._catalogue = store, ledger, catalogue
        self._clock, self._steady, self._keep_s = clock, SteadyClock(clock), keep_s
        self._purges = Purges(
            store, PURGES, (SHARES.c.session, VISITS.c.session, RECEIPTS.c.session), commitments.forget
        )

    async def sweep(self) -> None:
        """Remove what is due, and what another process left half removed; one that stays keeps no other. Raises: Unavailable."""
        try:
            await self._remove_finished()
        except Exception:  # but not where the service stops: this looks through whole folders
            await self._catalogue.tidy()
            raise
        await self._catalogue.tidy()

    async def _remove_finished(self) -> None:
        newest, kept = sa.func.max(JOURNAL.c.at), self._steady.before(self._keep_s)
        ended = sa.select(JOURNAL.c.stream, newest).where(JOURNAL.c.kind == VOCABULARY.stored(ENDED))
        statement = ended.group_by(JOURNAL.c.stream).having(newest <= self._steady.before(min(self._keep_s, KEPT_S)))
        for session, at in await self._store.read(lambda c: c.execute(statement).all()):
            state = self._ledger.find(session)
            if state is not None and state.ended is not None and (at <= kept or never_began(state)):
                await self._begin(session)
        await self._purges.finish(
            REQUESTS.c.session,
            lambda session: _log.info("removed a finished session with its receipts", session=session),
        )

    async def _begin(self, session: str) -> None:
        at = self._clock()

        def act(connection: Connection) -> None:
            if connection.execute(sa.delete(REQUESTS).where(REQUESTS.c.session == session)).rowcount:
                self._purges.note(connection, session, at)

        await self._store.write(act)
        self._ledger.forget(session)
