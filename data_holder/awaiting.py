"""For whom a session waits, as its operator is shown it: one line of its row. Decides nothing.

Nothing is decided by it either while the session goes on. Of one that has ended it says what is still owed: `Ending` goes by that, and it
alone writes it. What else was begun by then and shows itself later is not shown any more.
"""

from __future__ import annotations

from typing import Final

import sqlalchemy as sa

from data_holder.tables import rows
from data_holder.tables.schema import REQUESTS
from shared.service.statements import update_row
from shared.service.store import Store

MOST: Final = 200
"""Characters that the row has room for."""


class Awaiting:
    """Of every session."""

    def __init__(self, store: Store) -> None:
        self._store = store

    async def shown(self, session: str) -> str | None:
        """For whom it waits. Raises: NotFound."""
        row = await self._store.read(lambda connection: rows.request(connection, session))
        return None if row["waiting_for"] is None else str(row["waiting_for"])

    async def show(self, session: str, whom: str, **beside: str) -> None:
        """From now on this, and `beside` it other columns; nothing of a session that has ended."""
        goes_on = (REQUESTS.c.session == session) & (REQUESTS.c.state != "ended")
        statement = sa.update(REQUESTS).where(goes_on).values(waiting_for=whom[:MOST], **beside)
        await self._store.write(lambda connection: connection.execute(statement))

    async def over(self, session: str, beginnings: tuple[str, ...]) -> None:
        """Nobody any more, where what is shown begins so; what somebody else has written meanwhile stays. Raises: NotFound."""
        shown = await self.shown(session)
        if shown is not None and shown.startswith(beginnings):
            key = {"session": session, "waiting_for": shown}
            await self._store.write(lambda connection: update_row(connection, REQUESTS, key, {"waiting_for": None}))
