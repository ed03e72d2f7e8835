"""The replay window: which signature nonces were seen in the last minute, also across a restart. Knows no HTTP.

Memory decides, the table survives. A nonce's row is queued before any later write of the same store, and writes become durable in the
order they were queued: whatever a request changes in the database is durable only after its nonce is. A service whose acts do not go
through its store (MUX control) waits for the row instead (`durable=True`).
"""

from __future__ import annotations

import asyncio
from collections import Counter, deque

import sqlalchemy as sa
from sqlalchemy import Connection

from shared.errors import NotAuthenticated, Unavailable
from shared.service.clock import Clock
from shared.service.store import Store
from shared.service.tables import REPLAY_NONCES

WINDOW_S = 60.0
MAX_PER_KEY = 20_000
"""Requests of one key in memory at a time; bounds what one enrolled party can make this service hold."""
PURGE_EVERY = 256


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
        self._pending: set[asyncio.Task[None]] = set()
        self._since_purge = 0
        self._failure: BaseException | None = None

    async def open(self) -> None:
        """Reads back what the process before this one had seen. Raises: Unavailable."""
        statement = (
            sa.select(REPLAY_NONCES).where(REPLAY_NONCES.c.expires > self._clock()).order_by(REPLAY_NONCES.c.expires)
        )
        for row in await self._store.read(lambda connection: connection.execute(statement).all()):
            self._note(row.fingerprint, bytes(row.nonce), row.expires)

    async def remember(self, fingerprint: str, nonce: bytes, created: int) -> None:
        """Takes a nonce in, once.

        Raises:
            NotAuthenticated: code `signature-replayed`.
            Unavailable: code `replay-window-full`, or the database did not take an earlier nonce.
        """
        now = self._clock()
        self._forget(now)
        if self._failure is not None:
            raise Unavailable(
                "the replay window cannot be written, so no signed request is accepted",
                code="replay-window-unwritable",
                remedy="Mend the database (see readiness) and restart the service.",
            ) from self._failure
        if (fingerprint, nonce) in self._seen:
            raise NotAuthenticated(
                "this very request was received before",
                code="signature-replayed",
                remedy="Sign each request anew, with a fresh nonce.",
            )
        if self._per_key[fingerprint] >= self._max_per_key:
            raise Unavailable(
                f"more than {self._max_per_key} requests of one key within {self.window_s:.0f} s",
                code="replay-window-full",
                remedy="Send fewer requests, or wait a minute.",
            )
        # `created` may lie ahead of our clock by a whole window, and is valid for another one after that.
        expires = created + self.window_s + 1.0
        self._note(fingerprint, nonce, expires)
        await self._persist(fingerprint, nonce, expires, now)

    async def settled(self) -> None:
        """Waits until every nonce taken in so far is durable."""
        await asyncio.gather(*self._pending)

    async def _persist(self, fingerprint: str, nonce: bytes, expires: float, now: float) -> None:
        self._since_purge += 1
        purge = self._since_purge >= PURGE_EVERY
        if purge:
            self._since_purge = 0

        def insert(connection: Connection) -> None:
            # A party may use a nonce again once it has expired: its old row must not stand in the way.
            same = (REPLAY_NONCES.c.fingerprint == fingerprint) & (REPLAY_NONCES.c.nonce == nonce)
            old = (REPLAY_NONCES.c.expires <= now) | same if purge else same
            connection.execute(sa.delete(REPLAY_NONCES).where(old))
            connection.execute(sa.insert(REPLAY_NONCES).values(fingerprint=fingerprint, nonce=nonce, expires=expires))

        # `enqueue` puts the write in its place in the queue before this coroutine yields to any other.
        written = self._store.enqueue(insert)
        if self._durable:
            await written
            return
        task = asyncio.ensure_future(self._watch(written))
        self._pending.add(task)
        task.add_done_callback(self._pending.discard)

    async def _watch(self, written: asyncio.Future[None]) -> None:
        try:
            await written
        except Exception as error:
            # From here on a restart could forget this nonce: fail closed for every later request.
            self._failure = error

    def _note(self, fingerprint: str, nonce: bytes, expires: float) -> None:
        self._seen[(fingerprint, nonce)] = expires
        self._order.append((expires, (fingerprint, nonce)))
        self._per_key[fingerprint] += 1

    def _forget(self, now: float) -> None:
        # Nearly in order of expiry; one entry out of order only delays what lies behind it by at most a window.
        while self._order and self._order[0][0] <= now:
            _, entry = self._order.popleft()
            self._seen.pop(entry, None)
            self._per_key[entry[0]] -= 1
            if self._per_key[entry[0]] <= 0:
                del self._per_key[entry[0]]
