"""The holder's journal of facts and the states folded from it: the only memory that decisions read. Knows no HTTP.

A fact and the rows an operator lists are committed in one transaction; the state in memory follows only after the commit. At start the
journal's MACs are verified from the first fact on, so a changed row is found before anything is decided on it: its session is refused, and
no other.
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
from shared.errors import GputError, NotFound, Unavailable, VerificationFailed
from shared.service.clock import Clock
from shared.service.journal import Journal, NewFact, misplaced
from shared.service.logging import get_logger
from shared.service.store import Store
from shared.service.tables import JOURNAL
from shared.service.vocabulary import Vocabulary

Project = Callable[[Connection], object]
_log = get_logger("data_holder.ledger")
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
        self._refused: dict[str, GputError] = {}
        self._locks: dict[str, asyncio.Lock] = {}
        self.changes = 0
        """Commits since this service started, those without a fact too: what a page shows of visits and receipts changes by these alone."""

    @property
    def is_open(self) -> bool:
        """Whether the journal was verified; before, nothing may be decided."""
        return self._verified

    async def open(self, key: Secret) -> None:
        """Verify and fold every session's journal; one that is not what this holder wrote, or that is of a newer release, is refused.

        Raises:
            VerificationFailed: `journal-tampered`: no fact verifies, so the key is another; or a changed row is of no session that is
                known, and nobody can say of which one it is missing.
        """
        self._key = key
        self._states, self._refused = await self._store.read(self._load)
        self._verified = True
        for session, error in self._refused.items():
            _log.error(
                "a session is not served: its journal is refused", session=session, code=error.code, detail=error.detail,
                remedy=error.remedy,
            )  # fmt: skip

    def state(self, session: str) -> SessionState:
        """Raises: NotFound. VerificationFailed: `journal-tampered`; ConfigurationError: `newer-journal`: the session is refused."""
        if not self._verified:
            raise _locked()
        if session in self._refused:
            raise self._refused[session].with_traceback(None)
        found = self._states.get(session)
        if found is None:
            raise NotFound(f"session {session!r} was never offered to this holder", code="session-unknown")
        return found

    def states(self) -> Iterator[SessionState]:
        """Every session that is not refused, in no particular order."""
        return iter(list(self._states.values()))

    def find(self, session: str) -> SessionState | None:
        """The session's state; None where there is none, also of one that is refused."""
        return self._states.get(session)

    def knows(self, session: str) -> bool:
        """Whether the session has any fact here, also where it is refused: it is no new one."""
        return session in self._states or session in self._refused

    def refusal(self, session: str) -> GputError | None:
        """Why the session is refused, if it is."""
        return self._refused.get(session)

    def spoilt(self) -> frozenset[str]:
        """Sessions whose journal was changed: nothing is served of them any more. One that a newer release has written is none of them."""
        return frozenset(session for session, error in self._refused.items() if isinstance(error, VerificationFailed))

    async def quiet_since(self, at: float) -> set[str]:
        """Sessions of which nothing was written since then. Raises: Unavailable."""
        quiet = sa.select(JOURNAL.c.stream).group_by(JOURNAL.c.stream).having(sa.func.max(JOURNAL.c.at) <= at)
        return set(await self._store.read(lambda connection: connection.execute(quiet).scalars().all()))

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
            ProtocolViolation: a fact the tables do not allow. Conflict: somebody else wrote this journal. What `require` raises. As
                `state`, of a session that is refused.
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
            state = self.state(session) if self.knows(session) else SessionState(session)
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

    def _load(self, connection: Connection) -> tuple[dict[str, SessionState], dict[str, GputError]]:
        asked = set(connection.execute(sa.select(REQUESTS.c.session)).scalars())
        # Half removed. A note without that, which the platform might leave, hides nothing: the request is there.
        leaving = set(connection.execute(sa.select(PURGES.c.stream)).scalars()) - asked
        states, refused, is_ours = dict[str, SessionState](), dict[str, GputError](), False
        for stream in self._journal.streams(connection):
            if stream in leaving:
                continue
            state = SessionState(stream)
            try:
                for fact, _ in self._journal.verified(connection, stream):
                    state.fold(fact.kind, fact.body)
                if state.seq == 0:  # its name is no text any more
                    raise misplaced(stream)
            except GputError as error:
                if stream not in asked:
                    raise
                refused[stream] = error
                # Other refusals than that come of facts that verified.
                is_ours |= state.seq > 0 or not isinstance(error, VerificationFailed)
            else:
                states[stream], is_ours = state, True
        if refused and not is_ours:
            raise next(iter(refused.values()))
        return states, refused

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
