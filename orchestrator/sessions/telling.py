"""A session's journal, read again for who watches it: nothing is told of it that does not verify. Knows no event and no HTTP.

The database is the platform's, and a book in memory says nothing of what lies there by now. So facts are told from the verified chain,
which is taken up at the nearest place to which it was verified before: a journal grows with its session, and those who watch come back.
"""

from __future__ import annotations

from bisect import bisect_right, insort

from sqlalchemy import Connection

from orchestrator.sessions.rows import legible
from shared.service.journal import EMPTY, Fact, Head, Journal
from shared.service.store import Store

MARK_EVERY = 256
"""Facts between two places that are remembered: what is verified once more, at most, for who comes back."""


class Telling:
    """One session's. `head`: to which its journal was verified when it was loaded."""

    def __init__(self, session: str, head: Head, *, store: Store, journal: Journal) -> None:
        self._session, self._store, self._journal = session, store, journal
        self._marks = [EMPTY] if head == EMPTY else [EMPTY, head]

    async def after(self, seq: int, last: int, limit: int, known: Head = EMPTY) -> tuple[list[Fact], Head]:
        """The facts that follow the one numbered `seq` up to `last`, which is durable, `limit` at most; and the head behind them.

        Args:
            known: what this answered before. It is begun there if that is where `seq` is.

        Raises:
            VerificationFailed: code `journal-tampered`: one of them is not what was written. Unavailable.
        """
        last = min(last, seq + limit)
        if last <= seq:
            return [], known
        start = known if known.seq == seq else self._marks[bisect_right(self._marks, seq, key=_seq) - 1]

        def act(connection: Connection) -> list[tuple[Fact, Head]]:
            return list(self._journal.verified(connection, self._session, start, last))

        with legible(self._session):
            read = await self._store.read(act)
        for _, head in read:
            if head.seq % MARK_EVERY == 0:
                self._mark(head)
        return [fact for fact, _ in read if fact.seq > seq], read[-1][1]

    def _mark(self, head: Head) -> None:
        if self._marks[bisect_right(self._marks, head.seq, key=_seq) - 1].seq != head.seq:
            insort(self._marks, head, key=_seq)


def _seq(head: Head) -> int:
    return head.seq
