"""Who fetched a session's finished model, when: written down before its first byte leaves. Knows no policy, no file and no HTTP.

A fetch is all that one party's key asks for of one file within `WINDOW_S`, in however many requests (a resumed download, HTTP ranges). Its
first request is a row of its own; the rest are counted, and summed up in rows that double the number of requests each time, so that a
thousand requests are a dozen rows. Each session's rows are a journal of their own, under a key of its own, so that a row changed, added or
taken away between others is noticed. Rows cut off at the end are noticed as long as the process lives that wrote them, and nothing is
written behind what is left of them.
"""

from __future__ import annotations

import hmac
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import asdict, dataclass, replace

from sqlalchemy import Connection

from orchestrator.tables import MODEL_FETCHES
from shared.names import Role
from shared.service.clock import Clock
from shared.service.journal import Head, Journal, NewFact
from shared.service.store import Store
from shared.service.vocabulary import Vocabulary

FETCHED, MORE = "model.fetched", "model.more"
WINDOW_S = 3600.0
"""Requests within so long of the first one belong to one fetch; a slow download is resumed for less."""
MOST = 1024
"""Fetches that may still grow and are remembered; of one that is not, the next request begins another."""
_LABEL = b"gput/model-fetches/1"
_VOCABULARY = Vocabulary(
    {FETCHED: 2, MORE: 1}, {(FETCHED, 1): lambda body: {**body, "bytes": body["size_bytes"]}}
)  # the first version knew nothing of ranges: a row for each request, of the whole


@dataclass(frozen=True)
class Fetch:
    """What one key asked for of a model within `WINDOW_S`, and was answered with.

    Attributes:
        at: seconds since the epoch: its first request.
        party, role, fingerprint: whose signature the requests bore; `fingerprint` of its key, hex.
        sha256: of the file, hex. size_bytes: of the whole file.
        requests, bytes: how many there were, and what they asked for together. After a restart they may say half of what was.
    """

    at: float
    party: str
    role: str
    fingerprint: str
    sha256: str
    size_bytes: int
    bytes: int
    requests: int = 1


@dataclass
class _Open:
    """A fetch that may still grow: its row, and what was counted. `noted`: requests that are written down."""

    seq: int
    began: float
    requests: int
    bytes: int
    noted: int = 1


class Fetches:
    """All sessions'. A session's key must be at hand (its book is open) whenever it is asked about.

    Args:
        journal_key: of the session's own journal; another is derived from it.
    """

    def __init__(self, store: Store, journal_key: Callable[[str], bytes], clock: Clock) -> None:
        self._store, self._clock = store, clock
        self._journal = Journal(
            lambda session: hmac.digest(journal_key(session), _LABEL, "sha256"), _VOCABULARY, MODEL_FETCHES
        )
        self._seen: dict[str, Head] = {}
        self._open: OrderedDict[tuple[str, str, str], _Open] = OrderedDict()

    async def record(
        self, session: str, *, party: str, role: Role, fingerprint: str, sha256: str, size: int, asked: int
    ) -> None:
        """A request for `asked` bytes of the model, whose file has `size`. That there is such a fetch is durable when this returns.

        Raises:
            Unavailable: the database refused. VerificationFailed: `journal-tampered`. Then nothing may be handed out.
        """
        at, key = self._clock(), (session, fingerprint, sha256)
        known = self._open.get(key)
        if known is not None and known.began <= at < known.began + WINDOW_S:
            known.requests, known.bytes = known.requests + 1, known.bytes + asked
            if known.requests >= 2 * known.noted:
                await self._note(session, known, at)
            return
        if known is not None and known.requests > known.noted:
            await self._note(session, known, at)
        body: dict[str, object] = {
            "party": party, "role": role.value, "fingerprint": fingerprint, "sha256": sha256, "size_bytes": size, "bytes": asked,
        }  # fmt: skip
        self._open[key] = _Open(await self._append(session, FETCHED, body, at), at, 1, asked)
        self._open.move_to_end(key)
        if len(self._open) > MOST:
            self._open.popitem(last=False)

    async def _note(self, session: str, known: _Open, at: float) -> None:
        known.noted = known.requests
        await self._append(session, MORE, {"of": known.seq, "requests": known.requests, "bytes": known.bytes}, at)

    async def _append(self, session: str, kind: str, body: dict[str, object], at: float) -> int:
        seen = self._seen.get(session)

        def act(connection: Connection) -> Head:
            end = self._journal.head(connection, session)
            if seen is not None and end != seen:
                # Another wrote on, here or in another process, whose rows come after what was seen; or that was cut off.
                self._journal.load(connection, session, anchor=seen)
            return self._journal.append(connection, session, [NewFact(kind, body)], expected_seq=end.seq, at=at)

        head = self._seen[session] = await self._store.write(act)
        return head.seq

    async def of(self, session: str) -> list[Fetch]:
        """In order. Raises: VerificationFailed: code `journal-tampered`."""
        seen = self._seen.get(session)
        facts = await self._store.read(lambda connection: self._journal.load(connection, session, anchor=seen))
        found: dict[int, Fetch] = {}
        for fact in facts:
            if fact.kind == FETCHED:
                found[fact.seq] = Fetch(at=fact.at, **fact.body)
            elif (first := found.get(fact.body["of"])) is not None:
                found[fact.body["of"]] = replace(first, requests=fact.body["requests"], bytes=fact.body["bytes"])
        for (stream, _, _), known in self._open.items():
            if stream == session and known.seq in found:
                found[known.seq] = replace(found[known.seq], requests=known.requests, bytes=known.bytes)
        return list(found.values())

    async def bytes_to_holders(self, session: str) -> int:
        """Of models, so far (law L9: zero unless the output policy says so). Raises: as `of`."""
        return sum(fetch.bytes for fetch in await self.of(session) if fetch.role == Role.HOLDER.value)

    def forget(self, session: str) -> None:
        """It is being removed."""
        self._seen.pop(session, None)
        for key in [key for key in self._open if key[0] == session]:
            del self._open[key]


def fetch_view(fetch: Fetch) -> dict[str, object]:
    """As readers see it."""
    return asdict(fetch)
