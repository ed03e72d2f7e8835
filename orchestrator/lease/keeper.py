"""Taking the lease, keeping it, and hearing that it is lost; or, where the database has one user, nothing of all that. Knows no session."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Protocol, TypeVar

from sqlalchemy import Connection
from sqlalchemy.exc import DBAPIError

from orchestrator.lease import rows
from orchestrator.lease.fence import Fence
from orchestrator.lease.rows import Claimant
from shared.errors import ConfigurationError, GputError
from shared.service.engine import create_engine, parse_url, translate
from shared.service.logging import get_logger
from shared.service.migrations import check_schema, downgrade, upgrade
from shared.service.store import Store
from shared.service.trouble import Trouble

T = TypeVar("T")
PACKAGE = "orchestrator"
RENEWALS = 3
"""Tries within one lease."""
SHORTEST_S, LONGEST_S = 0.05, 1.0
"""Between two looks, of a follower at the row, of a leader at its timer."""
_log = get_logger("lease")


def prepare_schema(store: Store, files: Path, holder: Callable[[], str]) -> None:
    """The newest schema; of a database that another orchestrator works with at this moment nothing is changed.

    Args:
        files: folder of what whoever leads goes on with.

    Raises:
        ConfigurationError, Unavailable: as `upgrade`; code `schema-outdated`: a standby of a newer release.
    """
    if _led_by_another(store, holder):
        check_schema(store.url, PACKAGE)
    else:
        upgrade(store.url, PACKAGE, files)


def go_back(store: Store, files: Path, holder: Callable[[], str], revision: str) -> None:
    """An older schema, for an older version of the program.

    Raises:
        ConfigurationError: as `downgrade`; code `schema-in-use`: another orchestrator leads. Unavailable.
    """
    read_alone(store, holder, _nothing)
    downgrade(store.url, PACKAGE, revision, files)


def read_alone(store: Store, holder: Callable[[], str], act: Callable[[Connection], T]) -> T:
    """What `act` finds in the database, of which no other orchestrator is the leader.

    Raises:
        ConfigurationError: code `schema-in-use`: one is. Unavailable.
    """
    if _led_by_another(store, holder):
        raise ConfigurationError(
            "another orchestrator leads over this database", code="schema-in-use", remedy="Stop it cleanly first."
        )
    return _apart(store.url, act)


def _led_by_another(store: Store, holder: Callable[[], str]) -> bool:
    return store.dialect == "postgresql" and _apart(store.url, lambda c: rows.led_by_another(c, holder()))


class Lease(Protocol):
    """The right to lead, whatever stands behind it."""

    async def take(self, *, reclaim: bool = False) -> float | None:
        """None once it is ours; else seconds after which to ask again. Raises: ConfigurationError, Unavailable."""

    async def sealed(self, seal: bytes) -> None:
        """Write down the measurement that leads (32 bytes). Raises: ConfigurationError `standby-differs`; Unavailable."""

    async def lost(self) -> str:
        """Keeps the lease; returns when it is lost, and why."""

    async def end(self, *, released: bool) -> None:
        """Nothing of the term runs any more. `released`: whoever asks next may have it at once."""


class SoleLease:
    """One orchestrator on a database of its own (SQLite): it leads from start to stop, held by the lock on its data_dir."""

    async def take(self, *, reclaim: bool = False) -> float | None:
        """At once."""

    async def sealed(self, seal: bytes) -> None:
        """Nobody else reads it."""

    async def lost(self) -> str:
        """Never."""
        never: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        return await never

    async def end(self, *, released: bool) -> None:
        """Nobody waits for it."""


class SharedLease:
    """The row in PostgreSQL. Its `fence` rides in every transaction of the store from here on."""

    def __init__(
        self, store: Store, who: Claimant, timer: Callable[[], float] = time.monotonic, *, recover: bool = False
    ) -> None:
        """Call it on the event loop's thread, after the store was opened. `recover`: as `rows.seal`; an expired lease only, as ever."""
        self._store, self._who, self._timer, self._recover = store, who, timer, recover
        self._loop, self._news = asyncio.get_running_loop(), asyncio.Event()
        self.fence = Fence(who, timer, self._deposed)
        self._away = Trouble(_log, "the lease cannot be renewed")
        store.add_rider(self.fence)

    def _deposed(self) -> None:
        with suppress(RuntimeError):  # the loop is closed: nobody waits any more
            self._loop.call_soon_threadsafe(self._news.set)

    async def take(self, *, reclaim: bool = False) -> float | None:
        """As `Lease.take`. `reclaim`: no process of ours can still be at work (our data_dir is locked by us)."""
        began = self._timer()
        found = await asyncio.to_thread(_apart, self._store.url, lambda c: rows.take(c, self._who, reclaim=reclaim))
        if not isinstance(found, int):
            return min(self._who.lease_s / RENEWALS, LONGEST_S, max(found.left_s or 0.0, SHORTEST_S))
        self._news.clear()
        self.fence.taken(found, began)
        _log.info("took the lease", term=found)
        return None

    async def sealed(self, seal: bytes) -> None:
        """As `Lease.sealed`."""
        await self._store.write(lambda connection: rows.seal(connection, seal, recover=self._recover))

    async def lost(self) -> str:
        """As `Lease.lost`: by the database's word, or because none came in time."""
        renewing = asyncio.create_task(self._renew())
        try:
            while (left := self.fence.left_s()) > 0:
                with suppress(TimeoutError):
                    async with asyncio.timeout(min(max(left, SHORTEST_S), LONGEST_S)):
                        await self._news.wait()
                        break
        finally:
            renewing.cancel()
        _log.error("lost the lease", term=self.fence.token, why=self.fence.why)
        return self.fence.why

    async def _renew(self) -> None:
        while True:
            await asyncio.sleep(self._who.lease_s / RENEWALS)
            try:
                await self._store.write(_nothing)
            except GputError as error:
                self._away.met(error)
            except Exception as error:  # a bug must not look like a lease that nobody wants any more
                _log.error("renewing broke", exc_info=error)
            else:
                self._away.over()

    async def end(self, *, released: bool) -> None:
        """As `Lease.end`; what the term had queued is settled first, so that none of it is written in a later one."""
        token, held = self.fence.token, self.fence.left_s() > 0
        self.fence.emptied()
        with suppress(GputError):
            await self._store.write(_nothing)
        if held:
            with suppress(GputError):  # then it expires
                await asyncio.to_thread(
                    _apart, self._store.url, lambda c: rows.end(c, self._who, token, released=released)
                )


def _apart(url: str, act: Callable[[Connection], T]) -> T:
    """One transaction outside the store, whose own ones are the leader's. A follower makes one a second, so it keeps no connection."""
    parsed = parse_url(url)
    engine = create_engine(parsed, "write")
    try:
        with engine.begin() as connection:
            return act(connection)
    except DBAPIError as error:
        raise translate(error, parsed) or error from error
    finally:
        engine.dispose()


def _nothing(_connection: Connection) -> None:
    """A transaction for its riders' sake."""
