"""Which ended sessions their owners want gone, and which holders have heard of an end and have what is theirs. Removes nothing.

Rows are the platform's to change, and decide only when a session goes that its owner may remove anyway.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass
from typing import Any

import sqlalchemy as sa
from sqlalchemy import Connection

from orchestrator.sessions.rows import LISTED, listed
from orchestrator.tables import ENDS_HEARD, REMOVALS, SECRETS, SESSIONS
from shared.canonical import json_value
from shared.errors import BadRequest, Conflict
from shared.names import SessionPhase
from shared.protocol.session import SESSION
from shared.service.statements import find_row, put_row
from shared.service.store import Store

FINAL = tuple(phase.value for phase in SessionPhase if SESSION.final(phase))
MOST = 200
"""Sessions looked through at once, and that a holder is told of at once."""


@dataclass(frozen=True)
class Removal:
    """An owner's wish that is not fulfilled yet. `asked_at`: seconds since 1970; `waits_for`: holders."""

    asked_at: float
    waits_for: tuple[str, ...]


class Removals:
    """All sessions'; knows only what is stored."""

    def __init__(self, store: Store) -> None:
        self._store = store

    async def ask(self, session: str, at: float, heirs: Collection[str]) -> bool:
        """Its owner wants it gone. From here on its checkpoints open nowhere any more. False: there is no such session that has ended.

        Args:
            heirs: sessions that name it as their predecessor, and that need nothing of it any more.

        Raises:
            Conflict: another was submitted meanwhile that does. Unavailable: the database refused. Nothing was changed.
        """

        def act(connection: Connection) -> bool:
            ended = (SESSIONS.c.id == session) & SESSIONS.c.phase.in_(FINAL)
            if connection.execute(sa.select(SESSIONS.c.id).where(ended)).first() is None:
                return False
            if new := set(naming(connection, session)) - set(heirs):
                raise needed(new)
            if find_row(connection, REMOVALS, {"session": session}) is None:
                put_row(connection, REMOVALS, {"session": session}, {"asked_at": at})
            connection.execute(sa.delete(SECRETS).where(SECRETS.c.session == session))
            return True

        return await self._store.write(act)

    async def hear(self, session: str, holder: str, at: float) -> None:
        """The holder has heard of the end and has what is its own. Again changes only the time. Raises: Unavailable."""
        key = {"session": session, "holder": holder}
        known = sa.select(SESSIONS.c.id).where(SESSIONS.c.id == session)

        def act(connection: Connection) -> None:
            if connection.execute(known).first() is not None:  # it may be gone since it was looked at
                put_row(connection, ENDS_HEARD, key, {"at": at})

        await self._store.write(act)

    async def unheard(self, session: str, roster: Iterable[str]) -> tuple[str, ...]:
        """Who of the roster has not. Raises: Unavailable."""
        statement = sa.select(ENDS_HEARD.c.holder).where(ENDS_HEARD.c.session == session)
        heard = set(await self._store.read(lambda c: list(c.execute(statement).scalars())))
        return tuple(holder for holder in roster if holder not in heard)

    async def of(self, session: str, roster: Iterable[str]) -> Removal | None:
        """The owner's wish, if there is one. Raises: Unavailable."""
        row = await self._store.read(lambda connection: find_row(connection, REMOVALS, {"session": session}))
        return None if row is None else Removal(row["asked_at"], await self.unheard(session, roster))

    async def asked(self) -> list[dict[str, Any]]:
        """Rows of the sessions that their owners want gone and that wait for holders, longest first, as `listed`. Raises: Unavailable."""
        theirs = sa.select(*LISTED).join(REMOVALS, SESSIONS.c.id == REMOVALS.c.session)
        statement = theirs.order_by(REMOVALS.c.asked_at).limit(MOST)
        return await self._store.read(lambda connection: listed(connection, statement))


def naming(connection: Connection, session: str) -> list[str]:
    """Sessions that have not ended and name this one in their manifest as their predecessor."""
    rows = connection.execute(sa.select(SESSIONS.c.id, SESSIONS.c.manifest).where(SESSIONS.c.phase.not_in(FINAL)))
    return [row.id for row in rows if _goes_on_from(session, row.manifest)]


def _goes_on_from(session: str, manifest: Any) -> bool:
    if not isinstance(manifest, bytes):  # somebody changed the row
        return True
    if session.encode() not in manifest:  # as a rule; a name for people may have it as well
        return False
    try:
        said = json_value(manifest)
    except BadRequest:  # somebody changed the row: nothing is removed on its word
        return True
    match said:
        case {"predecessor": {"session": named}}:
            return bool(named == session)
    return False


def needed(heirs: Iterable[str]) -> Conflict:
    """Why a session cannot be removed now."""
    return Conflict(
        f"{', '.join(sorted(heirs))} goes on with its model, and has none of its own yet", code="session-needed",
        remedy="Wait until that has begun, or cancel it.",
    )  # fmt: skip
