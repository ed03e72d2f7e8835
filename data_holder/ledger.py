"""The holder's journal of facts and the states folded from it: the only memory that decisions read. Knows no HTTP.

A fact and the rows an operator lists are committed in one transaction; the state in memory follows only after the commit. At start the
journal's MACs are verified from the first fact on, so a changed row is found before anything is decided on it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator, Sequence
from copy import copy
from typing import Any

import sqlalchemy as sa
from sqlalchemy import Connection

from data_holder.protocol.state import DECISION, KINDS, REQUEST, SessionState
from data_holder.tables.schema import PURGES, REQUESTS
from shared.crypto.secret import Secret
from shared.errors import NotFound, Unavailable
from shared.service.clock import Clock
from shared.service.journal import Journal, NewFact
from shared.service.store import Store
from shared.service.vocabulary import Vocabulary

Project = Callable[[Connection], object]
VOCABULARY = Vocabulary(
    # 2: the signed document may have a profile, which an older reader would take for a changed one.
    versions=dict.fromkeys(KINDS, 1) | {DECISION: 2},
    steps={(DECISION, 1): lambda body: body},
    # Requests of before orchestrators said whose they are.
    # Approvals signed before they said how many records they are over, and before there was a second rule for their root, or for reading
    # a table.
    added={
        REQUEST: {"owner_key": "", "owner_signature": ""},
        DECISION: {"records": None, "record_rule": 1, "conversion": 1},
    },
)
"""How facts of earlier releases are read."""


class Ledger:
    """States of every session this holder knows. `open` needs the journal key, which the quoting enclave derives for this CVM."""

    def __init__(self, store: Store, clock: Clock) -> None:
        self._store = store
        self._clock = clock
        self._key: Secret | None = None
        self._verified = False
        self._journal = Journal(self._reveal, VOCABULARY)
        self._states: dict[str, SessionState] = {}
        self._locks: dict[str, asyncio.Lock] = {}
        self.changes = 0
        """Commits since this service started, those without a fact too: what a page shows of visits and receipts changes by these alone."""

    @property
    def is_open(self) -> bool:
        """Whether the journal was verified; before, nothing may be decided."""
        return self._verified

    async def open(self, key: Secret) -> None:
        """Verify and fold every session's journal.

        Raises:
            VerificationFailed: `journal-tampered`.
        """
        self._key = key
        self._states = await self._store.read(self._load)
        self._verified = True

    def state(self, session: str) -> SessionState:
        """Raises: NotFound."""
        if not self._verified:
            raise _locked()
        found = self._states.get(session)
        if found is None:
            raise NotFound(f"session {session!r} was never offered to this holder", code="session-unknown")
        return found

    def states(self) -> Iterator[SessionState]:
        """Every session, in no particular order."""
        return iter(list(self._states.values()))

    def knows(self, session: str) -> bool:
        """Whether the session has any fact here."""
        return session in self._states

    async def facts(self, session: str, kind: str) -> list[dict[str, Any]]:
        """The session's facts of one kind, in order, from its journal, whose MACs are verified once more: for what no state remembers.

        Raises:
            VerificationFailed: `journal-tampered`.
        """
        found = await self._store.read(lambda connection: self._journal.load(connection, session))
        return [fact.body for fact in found if fact.kind == kind]

    async def record(
        self, session: str, facts: Sequence[tuple[str, dict[str, Any]]], project: Project,
        require: Callable[[SessionState], object] | None = None,
    ) -> SessionState:  # fmt: skip
        """Commit facts with their projection, then fold them. An illegal fact changes nothing, neither here nor there.

        Args:
            require: looks at the state to which they are added, and raises where they must not be: what was committed meanwhile counts.
        Raises:
            ProtocolViolation: a fact the tables do not allow. Conflict: somebody else wrote this journal. What `require` raises.
        """
        work = asyncio.ensure_future(self._record(session, facts, project, require))
        try:
            return await asyncio.shield(work)
        except asyncio.CancelledError:
            # A commit in flight is finished and folded before its caller goes: memory never lags behind the journal.
            await asyncio.wait([work])
            raise

    async def _record(
        self, session: str, facts: Sequence[tuple[str, dict[str, Any]]], project: Project,
        require: Callable[[SessionState], object] | None,
    ) -> SessionState:  # fmt: skip
        if not self._verified:
            raise _locked()
        async with self._locks.setdefault(session, asyncio.Lock()):
            state = self._states.get(session) or SessionState(session)
            if require is not None:
                require(state)
            trial = _copy(state)
            for kind, body in facts:
                trial.fold(kind, body)
            new = [NewFact(kind, body) for kind, body in facts]
            at = self._clock()

            def commit(connection: Connection) -> None:
                self._journal.append(connection, session, new, expected_seq=state.seq, at=at)
                project(connection)

            await self._store.write(commit)
            self._states[session] = trial
            self.changes += 1
            return trial

    def forget(self, session: str) -> None:
        """It is being removed: nobody finds it any more."""
        self._states.pop(session, None)
        self._locks.pop(session, None)
        self.changes += 1

    def _load(self, connection: Connection) -> dict[str, SessionState]:
        states = {}
        # Half removed. A note without that, which the platform might leave, hides nothing: the request is there.
        noted = sa.select(PURGES.c.stream).where(PURGES.c.stream.not_in(sa.select(REQUESTS.c.session)))
        leaving = set(connection.execute(noted).scalars())
        for stream in self._journal.streams(connection):
            if stream in leaving:
                continue
            state = SessionState(stream)
            for fact in self._journal.load(connection, stream):
                state.fold(fact.kind, fact.body)
            states[stream] = state
        return states

    def _reveal(self, _stream: str) -> bytes:
        if self._key is None:
            raise _locked()
        return self._key.reveal()


def _locked() -> Unavailable:
    return Unavailable(
        "the journal is not open yet: the quoting enclave has not given its key, or the journal did not verify",
        code="journal-locked",
        remedy="Check that the platform's quoting enclave runs and that the evidence token is this CVM's; then read the log",
    )


def _copy(state: SessionState) -> SessionState:
    """A copy deep enough that folding it leaves the original as it was."""
    trial = copy(state)
    trial.channels, trial.released = dict(state.channels), list(state.released)
    trial.attempts = {epoch: copy(attempt) for epoch, attempt in state.attempts.items()}
    return trial
