"""Idempotency-Key: a repeated creating POST gets the first answer again (IETF httpapi draft). Knows no resource.

Only successes are kept: a refusal changed nothing and may be asked for again. A crash between the act and the storing of its answer runs
the act again under the same key; so the act finds what it had done, by an id that follows from caller and key (as a session's does) or by
the name that the caller chose.
"""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable
from typing import Any

import sqlalchemy as sa
from fastapi import Request, Response
from sqlalchemy import Connection, Row

from shared.canonical import sha256
from shared.errors import BadRequest, Conflict
from shared.service.act_key import check_act_key
from shared.service.clock import Clock
from shared.service.store import Store
from shared.service.tables import IDEMPOTENT_REPLIES

KEEP_S = 24 * 3600.0
LIMIT = 100_000
PURGE_EVERY = 128
CALLERS_ROWS = 10_000
CALLERS_BYTES = 32 * 1024 * 1024
"""What one caller's answers may be; beyond it those of its own that are farthest from now go, and nobody else's: repeats that change
nothing would fill the disk."""
_TABLE = IDEMPOTENT_REPLIES

HEADER = "Idempotency-Key"


def _parameter(required: bool) -> dict[str, Any]:
    return {
        "parameters": [
            {
                "name": HEADER, "in": "header", "required": required, "example": "9f3c1e5a7b",
                "description": "Fresh and random for each new request; the same one when it is repeated: the answer is then the first "
                "one again, and nothing is done twice. Kept for a day, per caller.",
                "schema": {"type": "string", "minLength": 1, "maxLength": 128, "pattern": "^[!-~]+$"},
            }
        ]
    }  # fmt: skip


KEY_REQUIRED = _parameter(required=True)
"""For `openapi_extra` of a route that goes through `Replies.once`, which reads the header itself."""
KEY_HONOURED = _parameter(required=False)
"""The same for `Replies.once_if_keyed`."""


class KeyReused(BadRequest):
    """The key of another request."""

    status, default_code, title = 422, "idempotency-key-reused", "Idempotency-Key reused"


class Replies:
    """Answers to creating POSTs, per caller and key, for `keep_s` seconds; beyond `limit` those farthest from now go first, and of one
    caller's beyond `callers_bytes` (and a sixteenth) or `CALLERS_ROWS` its own. Not the oldest: while a clock was ahead, what it gave out
    would otherwise be the newest for long, and drive out all that comes after it."""

    def __init__(
        self,
        store: Store,
        clock: Clock,
        *,
        keep_s: float = KEEP_S,
        limit: int = LIMIT,
        callers_bytes: int = CALLERS_BYTES,
    ) -> None:
        self._store = store
        self._clock = clock
        self._keep_s = keep_s
        self._limit = limit
        self._running: set[tuple[str, str]] = set()
        self._since_purge = 0
        self._callers_bytes = callers_bytes
        self._since_trim: dict[str, tuple[int, int]] = {}
        """Of callers whose answers were counted since the start: rows and bytes that came after that."""

    async def open(self) -> None:
        """Drops what has expired. Raises: Unavailable."""
        await self._store.write(self._purge)

    async def once(
        self, request: Request, caller: str, act: Callable[[str], Awaitable[Response]], *, asked: bytes | None = None
    ) -> Response:
        """The stored answer, or that of `act(key)`, which is then stored.

        Args:
            caller: fingerprint of the verified caller; keys of different callers do not meet.
            asked: what makes the request the same one, where that is not every byte of its query and body. Whoever asks beforehand by
                `answered` has it as well.

        Raises:
            BadRequest: codes `idempotency-key-missing` (400), `idempotency-key-reused` (422).
            Conflict: code `idempotency-in-progress`. Whatever `act` raises; nothing is stored then.
        """
        key = _key(request)
        whole = await _digest(request)
        digest = whole if asked is None else _asked_digest(request.url.path, asked)
        if (caller, key) in self._running:
            raise Conflict(
                "the first request with this Idempotency-Key is still running",
                code="idempotency-in-progress",
                remedy="Repeat the request in a moment.",
                retry_after_s=1,
            )
        self._running.add((caller, key))
        try:
            stored = await self._store.read(lambda connection: self._find(connection, caller, key))
            if stored is not None:
                _require_same(stored, digest, whole)  # `whole`: byte by byte the request that a former release kept
                return _replayed(stored)
            response = await act(key)
            if response.status_code < 400:
                await self._keep(caller, key, digest, response)
            return response
        finally:
            self._running.discard((caller, key))

    async def once_if_keyed(
        self, request: Request, caller: str, act: Callable[[bool], Awaitable[Response]]
    ) -> Response:
        """As `once` where the request has a key; without one it is a request of its own each time.

        Args:
            act: told whether there is a key, and so whether to take what it finds done already as its own doing.
        """
        if HEADER not in request.headers:
            return await act(False)
        return await self.once(request, caller, lambda _key: act(True))

    async def answered(self, caller: str, key: str, path: str, asked: bytes) -> bool:
        """For who only asks: whether an answer is kept that `once` would give again at this path. Raises: KeyReused: another's is."""
        stored = await self._store.read(lambda connection: self._find(connection, caller, key))
        if stored is not None:
            _require_same(stored, _asked_digest(path, asked))
        return stored is not None

    def _find(self, connection: Connection, caller: str, key: str) -> Row[tuple[object, ...]] | None:
        row = connection.execute(
            sa.select(_TABLE).where(
                _TABLE.c.caller == caller, _TABLE.c.key == key, _TABLE.c.at > self._clock() - self._keep_s
            )
        ).first()
        return row  # noqa: RET504 (mypy sees the row's type only through a name)

    async def _keep(self, caller: str, key: str, digest: bytes, response: Response) -> None:
        headers = [(name, value) for name, value in response.headers.items() if name != "content-length"]
        values = {
            "request_digest": digest,
            "status": response.status_code,
            "headers": json.dumps(headers),
            "body": bytes(response.body),
            "at": self._clock(),
        }
        self._since_purge += 1
        purge = self._since_purge >= PURGE_EVERY
        if purge:
            self._since_purge = 0
        trim = self._must_trim(caller, len(response.body))

        def insert(connection: Connection) -> None:
            if purge:
                self._purge(connection)
            # An expired row may still lie under this key.
            connection.execute(sa.delete(_TABLE).where(_TABLE.c.caller == caller, _TABLE.c.key == key))
            connection.execute(sa.insert(_TABLE).values(caller=caller, key=key, **values))
            if trim:
                self._trim(connection, caller)

        await self._store.write(insert)

    def _must_trim(self, caller: str, size: int) -> bool:
        """Whether a caller's answers are to be counted, which costs a look at all of them: at its first one, then now and again."""
        known = self._since_trim.get(caller)
        rows, total = (1, size) if known is None else (known[0] + 1, known[1] + size)
        trim = known is None or rows >= PURGE_EVERY or total >= self._callers_bytes // 16
        self._since_trim[caller] = (0, 0) if trim else (rows, total)
        return trim

    def _trim(self, connection: Connection, caller: str) -> None:
        nearest = [sa.func.abs(_TABLE.c.at - self._clock()), _TABLE.c.key]
        ranked = sa.select(
            _TABLE.c.key,
            sa.func.row_number().over(order_by=nearest).label("place"),
            sa.func.sum(sa.func.length(_TABLE.c.body)).over(order_by=nearest).label("size"),
        ).where(_TABLE.c.caller == caller).subquery()  # fmt: skip
        beyond = sa.select(ranked.c.key).where(
            (ranked.c.place > CALLERS_ROWS) | ((ranked.c.size > self._callers_bytes) & (ranked.c.place > 1))
        )
        connection.execute(sa.delete(_TABLE).where(_TABLE.c.caller == caller, _TABLE.c.key.in_(beyond)))

    def _purge(self, connection: Connection) -> None:
        now = self._clock()
        connection.execute(sa.delete(_TABLE).where(_TABLE.c.at <= now - self._keep_s))
        away = sa.func.abs(_TABLE.c.at - now)
        nearest = sa.select(away).order_by(away).offset(self._limit).limit(1)
        if (cut := connection.execute(nearest).scalar()) is not None:
            connection.execute(sa.delete(_TABLE).where((_TABLE.c.at <= now - cut) | (_TABLE.c.at >= now + cut)))


def _key(request: Request) -> str:
    key = request.headers.get(HEADER)
    if key is None:
        raise BadRequest(
            "this request creates something and has no Idempotency-Key",
            code="idempotency-key-missing",
            remedy="Send a fresh random Idempotency-Key, and the same one when you repeat the request.",
        )
    return check_act_key(key)


async def _digest(request: Request) -> bytes:
    """What makes a request the same request: method, path, query and body."""
    head = f"{request.method} {request.url.path}?{request.url.query}\n".encode()
    return sha256(sha256(head) + sha256(await request.body()))


def _asked_digest(path: str, asked: bytes) -> bytes:
    """What makes a POST at this path the same one, as far as what is `asked` does."""
    return sha256(sha256(f"POST {path} asked\n".encode()) + sha256(asked))


def _require_same(row: Row[tuple[object, ...]], *digests: bytes) -> None:
    if bytes(row.request_digest) not in digests:
        raise KeyReused(
            "this Idempotency-Key was used for a different request", remedy="Send a fresh key with each new request."
        )


def _replayed(row: Row[tuple[object, ...]]) -> Response:
    response = Response(bytes(row.body), status_code=row.status)
    for name, value in json.loads(row.headers):
        response.headers[name] = value
    response.headers["idempotent-replayed"] = "true"
    return response


def document_replies(operation: dict[str, Any], problem: dict[str, Any]) -> None:
    """Adds what a repeated key is answered to an operation that takes one; leaves others as they are. `problem`: the error answer."""
    if not any(parameter["name"] == HEADER for parameter in operation.get("parameters", ())):
        return
    replayed = {
        "description": "`true` where this is the first answer again.",
        "schema": {"type": "string", "const": "true"},
    }
    for status, answer in operation["responses"].items():
        if status.startswith("2"):
            answer.setdefault("headers", {})["Idempotent-Replayed"] = replayed
    operation["responses"]["422"] = {
        **problem,
        "description": f"Wrong fields, or `{KeyReused.default_code}`: the {HEADER} was used for a different request.",
    }
