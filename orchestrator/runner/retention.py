"""Finished sessions are kept whole for so long, then removed whole: rows, journal, files; their newest signed head stays. Knows no GPU.

A session that has not ended is never touched, nor one whose checkpoint another is to begin with and has not yet. One that its owner
removes before its time loses its model and checkpoints at once; the rest goes when every holder has heard of the end and has its
receipts, or after `keep_removed_s`: else an owner could cut a holder off from them.
"""

from __future__ import annotations

import asyncio
import re
import shutil
import stat
from collections.abc import Awaitable, Collection, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import sqlalchemy as sa
from sqlalchemy import Connection

from orchestrator.runner.house import House
from orchestrator.runner.unused import Unused
from orchestrator.sessions.catalogue import FINAL
from orchestrator.sessions.removals import Removal, naming, needed
from orchestrator.sessions.rows import roster_of
from orchestrator.tables import (
    APPROVALS,
    ATTESTATIONS,
    CHANNELS,
    ENDS_HEARD,
    LEAVES,
    LOSSES,
    MODEL_FETCHES,
    PURGES,
    REMOVALS,
    SECRETS,
    SESSION_KEYS,
    SESSIONS,
    VISITS,
)
from shared.errors import Conflict, GputError, NotFound, Unavailable
from shared.service.data_dir import DISK_TROUBLE, unwritable
from shared.service.logging import get_logger
from shared.service.retention import Purges, each_of
from shared.service.steady_clock import SteadyClock

AT_ONCE = 100
"""Sessions that one sweep removes; those that another still needs do not count, or they would keep everybody behind them."""
OWNED = (
    *(table.c.session for table in (SECRETS, SESSION_KEYS, APPROVALS, ATTESTATIONS, CHANNELS, LOSSES, VISITS, LEAVES)),
    REMOVALS.c.session, ENDS_HEARD.c.session, MODEL_FETCHES.c.stream,
)  # fmt: skip
"""All tables with rows of a session but `sessions`, where it is known, and `tree_heads`, which stays."""
_ID = re.compile(r"s_[a-z0-9]+")
_log = get_logger("retention")


class Retention:
    """One orchestrator's; `sweep` is called again and again while it leads."""

    def __init__(self, house: House) -> None:
        self._house, self._steady = house, SteadyClock(house.clock)
        self._purges = Purges(house.store, PURGES, OWNED, self._remove_files)
        self._unused = Unused(house.store, house.library)

    async def sweep(self) -> None:
        """Remove what is due, and what another process left half removed.

        Raises:
            Unavailable: the database is away; or, when everything had its turn, why the first thing that is left could not be removed.
        """
        await self._begin_due()
        trouble = [
            await _met(self._take_up(await self._house.removals.asked())),
            await _met(self._purges.finish(SESSIONS.c.id, _removed)),
            await _met(self._unused.sweep(self._steady.before(self._house.settings.keep_unused_s))),
        ]
        if (first := next(filter(None, trouble), None)) is not None:
            raise first

    async def _begin_due(self) -> None:
        begun = 0
        for session in await self._due():
            named, heirs = await self._judged(session)
            if not heirs:
                begun += await self._begin(session, named)
            if begun == AT_ONCE:
                break

    async def remove(self, session: str) -> Removal | None:
        """A finished session, before its time, as its owner wishes: its model and checkpoints are gone when this returns.

        Returns:
            None: from now on nobody finds it; its rows go with the next sweeps. Else for whom the rest of it waits.

        Raises:
            Conflict: it has not ended (`session-not-ended`), or another needs its model (`session-needed`). NotFound: there is none, or
                another was quicker.
        """
        row = await self._house.catalogue.row(session)
        named, heirs = await self._judged(session)
        if heirs:
            raise needed(heirs)
        asked = self._house.catalogue.may_forget(session) and await self._house.removals.ask(
            session, self._house.clock(), named
        )
        if not asked:
            raise await self._not_ended(session)
        await self._remove_files(session)
        removal = await self._house.removals.of(session, roster_of(row))
        if removal is not None and not await self._fulfil(row, removal):
            return removal
        return None

    async def heard(self, session: str, holder: str) -> None:
        """The holder has heard of the session's end and has what is its own; if it was the last one, the owner's wish comes true.

        Raises:
            NotFound: it is gone. Conflict: it has not ended.
        """
        row = await self._house.catalogue.row(session)
        if row["phase"] not in FINAL:
            raise await self._not_ended(session)
        await self._house.removals.hear(session, holder, self._house.clock())
        await self._consider(row)

    async def _take_up(self, rows: Sequence[dict[str, Any]]) -> None:
        """Those that their owners want gone, on nobody's behalf: what is wrong with one keeps none of the others."""
        wanted = {row["id"]: row for row in rows}

        async def one(session: str) -> None:
            try:
                await self._consider(wanted[session])
            except Unavailable:
                raise
            except GputError as error:
                _log.error("a session cannot be removed", session=session, code=error.code, detail=error.detail)

        await each_of(wanted, one)

    async def _consider(self, row: dict[str, Any]) -> None:
        if await self._house.removals.of(row["id"], ()) is None:
            return
        await self._remove_files(row["id"])  # whoever wrote the wish down may have died before it did so
        removal = await self._house.removals.of(row["id"], roster_of(row))
        if removal is not None:
            with suppress(NotFound):  # whoever was quicker
                await self._fulfil(row, removal)

    async def _fulfil(self, row: dict[str, Any], removal: Removal) -> bool:
        """Whether nothing kept a session that its owner wants gone. Raises: NotFound: it is gone already."""
        session = row["id"]
        late = removal.asked_at <= self._steady.before(self._house.settings.keep_removed_s)
        if removal.waits_for and not late:
            return False
        # Whoever names it was judged when its owner asked, and nobody can since.
        if not await self._begin(session, await self._named(session)):
            raise await self._not_ended(session)
        await self._remove_files(session)
        _log.info("its owner removed a finished session; its signed log head stays", session=session)
        return True

    async def _not_ended(self, session: str) -> Conflict:
        """What to say of one that cannot be removed. Raises: NotFound: it is not there any more."""
        await self._house.catalogue.row(session)
        return Conflict(
            "The session has not ended", code="session-not-ended", remedy="Cancel it first, or wait for its end."
        )

    async def _due(self) -> list[str]:
        last = self._steady.before(self._house.settings.keep_finished_s)
        ended = SESSIONS.c.phase.in_(FINAL) & (SESSIONS.c.updated_at <= last)
        statement = sa.select(SESSIONS.c.id).where(ended).order_by(SESSIONS.c.updated_at)
        return await self._house.store.read(lambda c: list(c.execute(statement).scalars()))

    async def _judged(self, session: str) -> tuple[list[str], list[str]]:
        """Sessions that name this one, and those of them that go on with its model and have sealed none of their own yet."""
        named = await self._named(session)
        return named, [heir for heir in named if not await self._stands_alone(heir)]

    async def _named(self, session: str) -> list[str]:
        return await self._house.store.read(lambda connection: naming(connection, session))

    async def _stands_alone(self, heir: str) -> bool:
        try:
            return bool((await self._house.catalogue.open(heir)).durable.checkpoints)
        except GputError:
            return False  # what cannot be read now may be read again, and go on

    async def _begin(self, session: str, judged: Collection[str]) -> bool:
        """From here on nobody finds it, and its keys are gone: what is left of it anywhere opens no more.

        Args:
            judged: sessions that name it and that were found to need nothing of it.

        Returns:
            False: it has not ended, or another names it by now, of which nobody knows yet what it needs. Nothing was changed.
        """
        if not self._house.catalogue.may_forget(session):
            return False  # its row says that it has ended, and its journal says that it has not
        at = self._house.clock()

        def act(connection: Connection) -> bool:
            if not set(naming(connection, session)) <= set(judged):
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
            led_to = await asyncio.to_thread(_take_away, folder)
        except OSError as error:
            raise unwritable(folder, error) from error
        if led_to is not None:
            _log.warning(
                "a removed session's folder was a link; remove what it led to", session=session, path=str(led_to)
            )


def _take_away(folder: Path) -> Path | None:
    """The folder is gone; where it led if it was a link, for what somebody laid elsewhere is not ours to follow.

    Raises:
        OSError: also where the disk does not say whether it is there: what is not known to be gone is looked at again.
    """
    while True:
        try:
            mode = folder.lstat().st_mode
        except FileNotFoundError:
            return None
        with suppress(FileNotFoundError):  # another removes it, too
            if stat.S_ISLNK(mode):
                led_to = folder.readlink()
                folder.unlink()
                return led_to
            shutil.rmtree(folder)


def _removed(session: str) -> None:
    _log.info("removed a finished session; its signed log head stays", session=session)


async def _met(part: Awaitable[object]) -> Unavailable | None:
    """What kept a part of a sweep from its end, if anything of this service's own disk did; the others need not wait for that."""
    try:
        await part
    except Unavailable as error:
        if error.code not in DISK_TROUBLE:
            raise
        return error
    return None
