"""Who fetched a session's finished model, when: written down before its first byte leaves. Knows no policy, no file and no HTTP.

Each session's rows are a journal of their own, under a key of its own, so that a row changed, added or taken away between others is
noticed. Rows cut off at the end are noticed as long as the process lives that wrote them.
"""

from __future__ import annotations

import hmac
from collections.abc import Callable
from dataclasses import asdict, dataclass

from sqlalchemy import Connection

from orchestrator.tables import MODEL_FETCHES
from shared.names import Role
from shared.service.clock import Clock
from shared.service.journal import Head, Journal, NewFact
from shared.service.store import Store
from shared.service.vocabulary import Vocabulary

FETCHED = "model.fetched"
_LABEL = b"gput/model-fetches/1"


@dataclass(frozen=True)
class Fetch:
    """One request for a model that was answered with it.

    Attributes:
        at: seconds since the epoch.
        party, role, fingerprint: whose signature the request bore; `fingerprint` of its key, hex.
        sha256: of the file, hex. size_bytes: of the whole file, whatever part was asked for.
    """

    at: float
    party: str
    role: str
    fingerprint: str
    sha256: str
    size_bytes: int


class Fetches:
    """All sessions'. A session's key must be at hand (its book is open) whenever it is asked about.

    Args:
        journal_key: of the session's own journal; another is derived from it.
    """

    def __init__(self, store: Store, journal_key: Callable[[str], bytes], clock: Clock) -> None:
        self._store, self._clock = store, clock
        self._journal = Journal(
            lambda session: hmac.digest(journal_key(session), _LABEL, "sha256"), Vocabulary({FETCHED: 1}), MODEL_FETCHES
        )
        self._seen: dict[str, Head] = {}

    async def record(self, session: str, *, party: str, role: Role, fingerprint: str, sha256: str, size: int) -> None:
        """Durable when this returns. Raises: Unavailable: the database refused; then nothing may be handed out."""
        at = self._clock()
        body = {"party": party, "role": role.value, "fingerprint": fingerprint, "sha256": sha256, "size_bytes": size}

        def act(connection: Connection) -> Head:
            end = self._journal.head(connection, session).seq
            return self._journal.append(connection, session, [NewFact(FETCHED, body)], expected_seq=end, at=at)

        self._seen[session] = await self._store.write(act)

    async def of(self, session: str) -> list[Fetch]:
        """In order. Raises: VerificationFailed: code `journal-tampered`."""
        seen = self._seen.get(session)
        facts = await self._store.read(lambda connection: self._journal.load(connection, session, anchor=seen))
        return [Fetch(at=fact.at, **fact.body) for fact in facts]

    async def bytes_to_holders(self, session: str) -> int:
        """Of models, so far (law L9: zero unless the output policy says so). Raises: as `of`."""
        return sum(fetch.size_bytes for fetch in await self.of(session) if fetch.role == Role.HOLDER.value)

    def forget(self, session: str) -> None:
        """It is being removed."""
        self._seen.pop(session, None)


def fetch_view(fetch: Fetch) -> dict[str, object]:
    """As readers see it."""
    return asdict(fetch)
