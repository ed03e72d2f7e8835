"""A session out of storage: row and journal read, then folded, both on threads. Knows no book, and decides on nothing.

Journals grow with their sessions, and folding a long one takes longer than a lease lasts: on the event loop's thread it would cost the
process its term, and the next one's, and so on.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from sqlalchemy import Connection

from orchestrator.sessions.folding import fold
from orchestrator.sessions.keyring import Keyring
from orchestrator.sessions.rows import legible, no_session, require_session_id
from orchestrator.sessions.state import SessionState
from orchestrator.tables import SESSIONS
from shared.service.journal import EMPTY, Fact, Head, Journal
from shared.service.statements import find_row
from shared.service.store import Store


@dataclass(frozen=True)
class Stored:
    """A session's row and its journal, whose chain was verified; the facts are not folded yet."""

    row: Mapping[Any, Any]
    facts: list[Fact]
    head: Head


class Loader:
    """All sessions'."""

    def __init__(self, store: Store, keyring: Keyring, journal: Journal) -> None:
        self._store, self._keyring, self._journal = store, keyring, journal

    async def read(self, session: str, anchor: Head | None) -> Stored:
        """What is stored of a session; its keys are in the keyring afterwards.

        Raises:
            NotFound: no such session. VerificationFailed: row or journal was tampered with, or does not hold `anchor`. KeyAway.
        """

        def act(connection: Connection) -> tuple[Mapping[Any, Any] | None, list[Fact], Head]:
            row = find_row(connection, SESSIONS, {"id": session})
            if row is None:
                return None, [], EMPTY
            self._keyring.load(connection, session)
            facts = self._journal.load(connection, session, anchor=anchor)
            return row, facts, self._journal.head(connection, session)

        require_session_id(session)
        with legible(session):
            row, facts, head = await self._store.read(act)
        if row is None:
            raise no_session(session)
        return Stored(row, facts, head)


async def folded(row: Mapping[Any, Any], facts: list[Fact]) -> tuple[SessionState, SessionState]:
    """A session's state and its twin, which nobody else has yet. Raises: VerificationFailed: as `fold`, or as `legible`."""

    def act() -> tuple[SessionState, SessionState]:
        with legible(row["id"]):
            state = fold(row, facts)
        return state, state.twin()

    return await asyncio.to_thread(act)
