"""The replay window: which signature nonces were seen in the last minute, also across a restart. Knows no HTTP.

Memory decides, the table survives. Nonces ride along with the store's next transaction, whoever asks for it: what a request changes
in the database is durable only together with its nonce or after it, at no commit of its own. A crash in between forgets nonces of
requests that had changed nothing. A service whose acts do not go through its store (MUX control) waits for the row (`durable=True`).

The host owns the clock: put ahead and back again, it would have nonces forgotten that count once more. So a window also remembers of which
times it has forgotten any, in rows of the same table under nobody's fingerprint, which an older release reads past. What was received while
the clock was ahead is forgotten in the same way once it is right: it would otherwise be kept until that time comes.
"""

from __future__ import annotations

import asyncio
import threading
from collections import Counter, deque
from typing import Any

import sqlalchemy as sa
from sqlalchemy import Connection

from shared.errors import GputError, NotAuthenticated, Unavailable
from shared.service.clock import Clock
from shared.service.forgotten import NEAR_S, Forgotten
from shared.service.logging import get_logger
from shared.service.prepared import Prepared
from shared.service.store import Store
from shared.service.tables import REPLAY_NONCES
from shared.service.trouble import Trouble

_log = get_logger("replay")

WINDOW_S = 60.0
MAX_PER_KEY = 20_000
"""Requests of one key in memory at a time; bounds what one enrolled party can make this service hold."""
PURGE_EVERY_S = 30.0
FLUSH_AFTER_S = 0.2
"""Nonces of requests that wrote nothing are made durable after this time."""

NOBODY = ""
"""In place of a fingerprint: the row says until when nonces were forgotten, and its nonce since when (`_since`)."""
_OLD_MARK_BYTES, _MARK_BYTES = 8, 16
_HOUR_S = 3600.0
_UPSERT = Prepared(
    # A party may use a nonce again once it has expired: its old row must not stand in the way.
    sa.text(
        "INSERT INTO replay_nonces (fingerprint, nonce, expires) VALUES (:fingerprint, :nonce, :expires) "
        "ON CONFLICT (fingerprint, nonce) DO UPDATE SET expires = excluded.expires"
    )
)


class ReplayWindow:
    """Nonces of the last `window_s` seconds, per key. Call `open` once before use."""

    def __init__(
        self,
        store: Store,
        clock: Clock,
        *,
        window_s: float = WINDOW_S,
        durable: bool = False,
        max_per_key: int = MAX_PER_KEY,
    ) -> None:
        self.window_s = window_s
        self._store = store
        self._clock = clock
        self._durable = durable
        self._max_per_key = max_per_key
        self._seen: dict[tuple[str, bytes], float] = {}
        self._order: deque[tuple[float, tuple[str, bytes]]] = deque()
        self._per_key: Counter[str] = Counter()
        self._forgotten = Forgotten()
        self._lock = threading.Lock()  # guards the two below: the writer thread takes, the event loop adds
        self._due: list[dict[str, Any]] = []
        self._taken = 0
        self._purged_at = 0.0
        self._flush: asyncio.Task[None] | None = None
        self._behind = Trouble(_log, "replay window not written yet")
        store.add_rider(self)

    async def open(self) -> None:
        """Reads back what the process before this one had seen; again, what another has seen meanwhile. Raises: Unavailable."""
        statement, now = sa.select(REPLAY_NONCES).order_by(REPLAY_NONCES.c.expires), self._clock()
        for row in await self._store.read(lambda connection: connection.execute(statement).all()):
            if row.fingerprint == NOBODY:
                self._forgotten.note(_since(row.nonce), row.expires)
            elif not now < row.expires <= self._latest(now):
                self._forgotten.note(row.expires)
            elif (row.fingerprint, bytes(row.nonce)) not in self._seen:
                self._note(row.fingerprint, bytes(row.nonce), row.expires)

    async def remember(self, fingerprint: str, nonce: bytes, created: int) -> None:
        """Takes a nonce in, once.

        Raises:
            NotAuthenticated: code `signature-replayed`; `signature-stale`, of a time that was forgotten before this service's clock went
                back.
            Unavailable: code `replay-window-full`; with `durable`, also what the store raises.
        """
        now = self._clock()
        self._forget(now)
        if (fingerprint, nonce) in self._seen:
            raise NotAuthenticated(
                "this very request was received before",
                code="signature-replayed",
                remedy="Sign each request anew, with a fresh nonce.",
            )
        # `created` may lie ahead of our clock by a whole window, and is valid for another one after that.
        expires = created + self.window_s + 1.0
        if self._forgotten.may_hold(expires):
            raise _went_back(created, now)
        if self._per_key[fingerprint] >= self._max_per_key:
            raise Unavailable(
                f"more than {self._max_per_key} requests of one key within {self.window_s:.0f} s",
                code="replay-window-full",
                remedy="Send fewer requests, or wait a minute.",
            )
        self._note(fingerprint, nonce, expires)
        with self._lock:
            self._due.append({"fingerprint": fingerprint, "nonce": nonce, "expires": expires})
        if self._durable:
            await self._store.write(_nothing)
        elif self._flush is None or self._flush.done():
            self._flush = asyncio.ensure_future(self._flush_later())

    def write(self, connection: Connection) -> None:
        """Part of every transaction of the store (`shared.service.store.Rider`)."""
        now = self._clock()
        with self._lock:
            # Of a nonce that was used again after its time, while the database was away, the later row counts.
            rows = list({(row["fingerprint"], row["nonce"]): row for row in self._due}.values())
            self._taken = len(self._due)
        if rows:
            _UPSERT.insert_all(connection, rows)
        if abs(now - self._purged_at) >= PURGE_EVERY_S:
            self._purge(connection, now)
            self._purged_at = now

    def _purge(self, connection: Connection, now: float) -> None:
        """Takes away what is not of the present, and leaves marks of the times of which that was."""
        expires, theirs = REPLAY_NONCES.c.expires, REPLAY_NONCES.c.fingerprint != NOBODY
        gone = theirs & ((expires <= now) | (expires > self._latest(now)))
        marks = connection.execute(sa.select(REPLAY_NONCES.c.nonce, expires).where(~theirs)).all()
        before, known = {bytes(mark.nonce): mark.expires for mark in marks}, Forgotten()
        for nonce, until in before.items():
            known.note(_since(nonce), until)
        # What lies within one of these is one run for `Forgotten` too.
        near = sa.cast(expires / NEAR_S, sa.BigInteger)
        for since, until in connection.execute(
            sa.select(sa.func.min(expires), sa.func.max(expires)).where(gone).group_by(near)
        ):
            known.note(since, until)
        connection.execute(sa.delete(REPLAY_NONCES).where(gone))
        after = {int(since).to_bytes(_MARK_BYTES, "big"): until for since, until in known.runs}
        if needless := before.keys() - after.keys():
            connection.execute(sa.delete(REPLAY_NONCES).where(~theirs & REPLAY_NONCES.c.nonce.in_(needless)))
        if new := after.items() - before.items():
            rows = [{"fingerprint": NOBODY, "nonce": nonce, "expires": until} for nonce, until in new]
            _UPSERT.insert_all(connection, rows)

    def settle(self, *, committed: bool) -> None:
        """After the transaction: what was not committed is due again."""
        with self._lock:
            if committed:
                del self._due[: self._taken]
            self._taken = 0

    async def settled(self) -> None:
        """Waits until every nonce taken in so far is durable. Raises: Unavailable."""
        if self._due:
            await self._store.write(_nothing)

    async def _flush_later(self) -> None:
        await asyncio.sleep(FLUSH_AFTER_S)
        try:
            await self.settled()
        except GputError as error:
            # Still due: the next write carries them or fails with them, so nothing a request does outlives its nonce.
            self._behind.met(error)
        else:
            self._behind.over()

    def _note(self, fingerprint: str, nonce: bytes, expires: float) -> None:
        self._seen[(fingerprint, nonce)] = expires
        self._order.append((expires, (fingerprint, nonce)))
        self._per_key[fingerprint] += 1

    def _latest(self, now: float) -> float:
        """When the last of what is accepted now expires: its `created` may lie ahead of our clock by a window."""
        return now + 2 * self.window_s + 1.0

    def _forget(self, now: float) -> None:
        # Nearly in order of expiry; one entry out of order only delays what lies behind it by at most two windows. One that expires later
        # than anything of now can was received while the clock was ahead, and would hold up all that comes after it.
        while self._order and not now < self._order[0][0] <= self._latest(now):
            expires, entry = self._order.popleft()
            self._forgotten.note(expires)
            self._seen.pop(entry, None)
            self._per_key[entry[0]] -= 1
            if self._per_key[entry[0]] <= 0:
                del self._per_key[entry[0]]


def _went_back(created: int, now: float) -> NotAuthenticated:
    return NotAuthenticated(
        "this service's clock went back, to a time of which it has forgotten what it received: this request may have been among that",
        code="signature-stale",
        remedy="Sign the request again; if that does not help, set the clock of this service right, or wait until the time has passed.",
        expected=f"created after what was received before the clock went back to {int(now)}",
        got=str(created),
    )


def _since(nonce: bytes) -> float:
    """Since when what a mark stands for was forgotten: whole seconds since 1970, or in an older release's shorter mark, hours."""
    number = int.from_bytes(nonce, "big")
    return number * _HOUR_S if len(nonce) == _OLD_MARK_BYTES else float(number)


def _nothing(_connection: Connection) -> None:
    """A transaction for its riders' sake."""
