"""Finished sessions are kept whole for so long, then removed whole: rows, journal, files; their newest signed head stays. Knows no GPU.

A session that has not ended is never touched, nor one whose checkpoint another is to begin with and has not yet.
"""

from __future__ import annotations

import asyncio
import re
import shutil
from contextlib import suppress

import sqlalchemy as sa
from sqlalchemy import Connection

from orchestrator.runner.house import House
from orchestrator.runner.unused import Unused
from orchestrator.sessions.catalogue import FINAL
from orchestrator.tables import (
    APPROVALS,
    ATTESTATIONS,
    CHANNELS,
    LEAVES,
    LOSSES,
    MODEL_FETCHES,
    PURGES,
    SECRETS,
    SESSION_KEYS,
    SESSIONS,
    VISITS,
)
from shared.errors import Conflict, GputError
from shared.service.data_dir import unwritable
from shared.service.logging import get_logger
from shared.service.retention import Purges

AT_ONCE = 100
OWNED = (
    *(table.c.session for table in (SECRETS, SESSION_KEYS, APPROVALS, ATTESTATIONS, CHANNELS, LOSSES, VISITS, LEAVES)),
    MODEL_FETCHES.c.stream,
)
"""All tables with rows of a session but `sessions`, where it is known, and `tree_heads`, which stays."""
_ID = re.compile(r"s_[a-z0-9]+")
_log = get_logger("retention")


class Retention:
    """One orchestrator's; `sweep` is called again and again while it leads."""

    def __init__(self, house: House) -> None:
        self._house = house
        self._purges = Purges(house.store, PURGES, OWNED, self._remove_files)
        self._unused = Unused(house.store, house.library)

    async def sweep(self) -> None:
        """Remove what is due, after what another process left half removed. Raises: Unavailable."""
        await self._purges.finish(SESSIONS.c.id)
        for session in await self._due():
            if not await self._heirs(session):
                await self._begin(session)
        for session in await self._purges.finish(SESSIONS.c.id):
            _log.info("removed a finished session; its signed log head stays", session=session)
        await self._unused.sweep(self._house.clock() - self._house.settings.keep_unused_s)

    async def remove(self, session: str) -> None:
        """A finished session, before its time: from now on nobody finds it, its files are gone, its rows go with the next sweeps.

        Raises:
            Conflict: it has not ended (`session-not-ended`), or another needs its model (`session-needed`).
        """
        if heirs := await self._heirs(session):
            raise Conflict(
                f"{', '.join(heirs)} goes on with its model, and has none of its own yet", code="session-needed",
                remedy="Wait until that has begun, or cancel it.",
            )  # fmt: skip
        if not await self._begin(session):
            raise Conflict(
                "The session has not ended", code="session-not-ended", remedy="Cancel it first, or wait for its end."
            )
        await self._remove_files(session)
        _log.info("its owner removed a finished session; its signed log head stays", session=session)

    async def _due(self) -> list[str]:
        last = self._house.clock() - self._house.settings.keep_finished_s
        ended = SESSIONS.c.phase.in_(FINAL) & (SESSIONS.c.updated_at <= last)
        statement = sa.select(SESSIONS.c.id).where(ended).order_by(SESSIONS.c.updated_at).limit(AT_ONCE)
        return await self._house.store.read(lambda c: list(c.execute(statement).scalars()))

    async def _heirs(self, session: str) -> list[str]:
        """Sessions that go on with this one's model, and have sealed none of their own yet."""
        named = await self._house.store.read(lambda connection: _naming(connection, session))
        return [heir for heir in named if not await self._stands_alone(heir)]

    async def _stands_alone(self, heir: str) -> bool:
        try:
            return bool((await self._house.catalogue.open(heir)).durable.checkpoints)
        except GputError:
            return False  # what cannot be read now may be read again, and go on

    async def _begin(self, session: str) -> bool:
        """From here on nobody finds it, and its keys are gone: what is left of it anywhere opens no more. False: it has not ended."""
        if not self._house.catalogue.may_forget(session):
            return False  # its row says that it has ended, and its journal says that it has not
        at, heirs = self._house.clock(), await self._house.store.read(lambda connection: _naming(connection, session))

        def act(connection: Connection) -> bool:
            if not set(_naming(connection, session)) <= set(heirs):
                return False  # one that was submitted just now
            ended = (SESSIONS.c.id == session) & SESSIONS.c.phase.in_(FINAL)
            if not connection.execute(sa.delete(SESSIONS).where(ended)).rowcount:
                return False
            for keys in (SESSION_KEYS, SECRETS):
                connection.execute(sa.delete(keys).where(keys.c.session == session))
            self._purges.note(connection, session, at)
            return True

        if not await self._house.store.write(act):
            return False
        self._house.catalogue.forget(session)
        self._house.fetches.forget(session)
        return True

    async def _remove_files(self, session: str) -> None:
        if not _ID.fullmatch(session):  # it comes from the platform's disk and becomes a path
            return
        folder = self._house.folder(session)
        try:
            with suppress(FileNotFoundError):
                await asyncio.to_thread(shutil.rmtree, folder)
        except OSError as error:
            raise unwritable(folder, error) from error


def _naming(connection: Connection, session: str) -> list[str]:
    """Sessions that have not ended and name this one in their manifest, as nothing but their predecessor can be named."""
    rows = connection.execute(sa.select(SESSIONS.c.id, SESSIONS.c.manifest).where(SESSIONS.c.phase.not_in(FINAL)))
    return [row.id for row in rows if session.encode() in bytes(row.manifest)]
