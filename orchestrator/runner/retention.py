"""Finished sessions are kept whole for so long, then removed whole: rows, journal, files; their newest signed head stays. Knows no GPU.

A session that has not ended is never touched.
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
from shared.errors import Conflict
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
            await self._begin(session)
        for session in await self._purges.finish(SESSIONS.c.id):
            _log.info("removed a finished session; its signed log head stays", session=session)
        await self._unused.sweep(self._house.clock() - self._house.settings.keep_unused_s)

    async def remove(self, session: str) -> None:
        """A finished session, before its time: from now on nobody finds it, its files are gone, its rows go with the next sweeps.

        Raises:
            Conflict: it has not ended.
        """
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

    async def _begin(self, session: str) -> bool:
        """From here on nobody finds it, and its keys are gone: what is left of it anywhere opens no more. False: it has not ended."""
        if not self._house.catalogue.may_forget(session):
            return False  # its row says that it has ended, and its journal says that it has not
        at = self._house.clock()

        def act(connection: Connection) -> bool:
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
