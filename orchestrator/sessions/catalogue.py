"""All sessions: creating one, opening one's book after full verification, listing. Knows no GPU and no HTTP.

Whatever is loaded from storage is verified again: the manifest from its owner's signature, approvals from the holders', facts from
the journal's chain. Projection rows are only shown.
"""

from __future__ import annotations

import asyncio
from collections.abc import Collection
from typing import Any

from sqlalchemy import Connection, func, insert, select

from orchestrator.ids import new_session_id
from orchestrator.library import Library
from orchestrator.sessions.book import Book
from orchestrator.sessions.facts import VOCABULARY, new_fact
from orchestrator.sessions.heritage import Heritage, Inheritance
from orchestrator.sessions.keyring import KeyAway, Keyring
from orchestrator.sessions.loading import Loader, folded
from orchestrator.sessions.rows import LISTED, listed, manifests, no_session, require_session_id, whole_row
from orchestrator.sessions.state import SessionState
from orchestrator.sessions.submission import Known, Place, check_manifest, read_manifest, start_model
from orchestrator.sessions.views import summary
from orchestrator.sessions.watching import Noted, Watcher
from orchestrator.tables import HEADS, SESSIONS
from shared.attestation.one_time_keys import decoded
from shared.attestation.owners import verify_owner
from shared.claims.manifest import Manifest
from shared.crypto.signing import fingerprint
from shared.errors import Conflict, GputError, Unavailable
from shared.names import Role, SessionPhase
from shared.protocol.session import SESSION, SessionFact
from shared.service.changes import Changes, Stopping
from shared.service.clock import Clock
from shared.service.journal import Head, Journal
from shared.service.logging import get_logger
from shared.service.statements import find_row
from shared.service.store import Store
from shared.wire.visit import Signed

_log = get_logger("sessions")
FINAL = tuple(phase.value for phase in SESSION.phases() if SESSION.final(phase))
KEPT_ENDED = 16
"""Books of ended sessions that stay in memory for who looks at them."""


class Catalogue:
    """Books by session id. A book stays open while its session lives. `away`: sessions found live whose key is not at hand."""

    def __init__(
        self, store: Store, keyring: Keyring, library: Library, heritage: Heritage, clock: Clock, stopping: Stopping,
        watch: Watcher = lambda noted: None,
    ) -> None:  # fmt: skip
        self._store = store
        self._keyring = keyring
        self._library = library
        self._heritage = heritage
        self._clock = clock
        self._stopping = stopping
        self._watch = watch
        self._journal = Journal(keyring.journal_key, VOCABULARY)
        self._loader = Loader(store, keyring, self._journal)
        self._folding = asyncio.Lock()  # one at a time: threads that all compute leave the event loop little
        self._forgotten = 0  # how often sessions were
        self._books: dict[str, Book] = {}
        self._changes: dict[str, Changes] = {}
        self._seen: dict[str, Head] = {}  # ends of journals that this process knows to be durable
        self._refused: set[str] = set()
        self.away: set[str] = set()
        self.doubts, self.doubtful = Changes(stopping), set[str]()
        """Sessions of which a commit failed that may have taken effect: who acts on facts must read them again."""

    async def submit(self, signed: Signed, *, owner: str, owner_key: bytes, act: str, place: Place) -> Book:
        """Check a signed manifest whole and create its session; the same `act` answers the same session.

        Raises:
            VerificationFailed: not the owner's signature. As `read_manifest`, `submitted`, `judge`.
        """
        session = new_session_id(owner, act)
        document, signature = decoded(signed.document), decoded(signed.signature)
        verify_owner(document, owner_key, signature)
        manifest = await asyncio.to_thread(read_manifest, document)
        if await self.submitted(session):
            return await self.open(session)
        known, inherited = await self.judge(manifest, owner=owner, owner_key=owner_key, place=place)
        start = await asyncio.to_thread(start_model, manifest, known)
        await self._create(session, manifest, known, document, signature, owner, owner_key, place.gpu, start, inherited)
        return await self.open(session)

    async def judge(
        self, manifest: Manifest, *, owner: str, owner_key: bytes, place: Place
    ) -> tuple[Known, Inheritance | None]:
        """What a session under this manifest would begin with. Changes nothing.

        Raises:
            ManifestRefused: with every finding. KeyAway: as `Heritage.taken`. Unavailable: given weights cannot be read now.
        """
        known = await self._library.known_for(manifest, place.gpus, place.allow_emulated, place.gpu_memory)
        # May read gigabytes of weights: off the event loop.
        await asyncio.to_thread(check_manifest, manifest, place.gpu, known)
        return known, await self._heritage.taken(manifest, owner, fingerprint(owner_key), self.open)

    async def submitted(self, session: str) -> bool:
        """Whether there is such a session. Raises: Conflict `session-removed`: there was, and its holders may remember its log under this
        id."""
        statement = select(SESSIONS.c.id).where(SESSIONS.c.id == session)
        if await self._store.read(lambda c: c.execute(statement).first()) is not None:
            return True
        if await self._store.read(lambda connection: find_row(connection, HEADS, {"session": session})) is not None:
            raise Conflict(
                f"{session} was submitted under this Idempotency-Key, has ended and was removed", code="session-removed",
                remedy="Submit with a fresh Idempotency-Key.",
            )  # fmt: skip
        return False

    async def _create(
        self,
        session: str,
        manifest: Manifest,
        known: Known,
        document: bytes,
        signature: bytes,
        owner: str,
        owner_key: bytes,
        gpu: str,
        start: str | None,
        inherited: Inheritance | None = None,
    ) -> None:
        at = self._clock()
        fact = new_fact(
            SessionFact.SUBMITTED, Role.OWNER, manifest=manifest.digest().hex(), owner=owner,
            owner_key=fingerprint(owner_key), gpu=gpu, start_model=start, phase="AWAITING_APPROVAL",
            inherited=None if inherited is None else inherited.fact,
        )  # fmt: skip
        state = SessionState(session, manifest, owner, gpu)
        state.apply(fact.kind, fact.body, at)
        put_key = self._keyring.create(session, manifest)

        def write(connection: Connection) -> None:
            self._library.require(connection, manifest, known)
            number = (connection.execute(select(func.max(SESSIONS.c.number))).scalar() or 0) + 1
            row = {
                "id": session, "number": number, "owner": owner, "owner_key": owner_key.hex(), "manifest": document,
                "signature": signature, "gpu": gpu, "phase": state.phase.value, "version": state.seq,
                "created_at": at, "updated_at": at, "summary": summary(state),
            }  # fmt: skip
            connection.execute(insert(SESSIONS).values(row))
            put_key(connection)
            if inherited is not None:
                inherited.write(connection, session)
            self._journal.append(connection, session, [fact], expected_seq=0, at=at)

        await self._store.write(write)
        self._watch(Noted(session, fact.kind, fact.body, at))

    async def open(self, session: str) -> Book:
        """The session's book, verified from the ground up when it was not open yet or was closed.

        Raises:
            NotFound: no such session. VerificationFailed: storage was tampered with. KeyAway: its holders' shares are needed first.
        """
        while (book := self._books.get(session)) is None or book.closed:
            if book is not None:
                # What it is writing is read with the rest, or the fresh book would be behind the journal.
                await book.close()
                if self._books.get(session) is not book:
                    continue  # somebody was quicker
                self._seen[session] = book.head
            await self._open(session, instead=book)
        return book

    async def _open(self, session: str, instead: Book | None) -> None:
        forgotten = self._forgotten
        stored = await self._loader.read(session, self._seen.get(session))
        async with self._folding:
            # Several requests may have read at once; the first one's book is everybody's.
            if self._books.get(session) is not instead:
                return
            state, durable = await folded(stored.row, stored.facts)
            # Else it may be gone since it was read.
            if self._books.get(session) is instead and self._forgotten == forgotten:
                self._books.pop(session, None)  # the newest stands last
                self._books[session] = self._book(state, durable, stored.head)
                self.away.discard(session)
                self._let_go()

    def _let_go(self) -> None:
        """Of the ended sessions' books only the newest stay in memory; where their journals end is remembered of all."""
        ended = [session for session, book in self._books.items() if book.durable.ended]
        for session in ended[:-KEPT_ENDED]:
            self._seen[session] = self._books.pop(session).head
            self._changes.pop(session, None)

    def may_forget(self, session: str) -> bool:
        """Whether no book in memory says that the session goes on: an end on its way to the database is none yet."""
        book = self._books.get(session)
        return book is None or book.durable.ended

    def forget(self, session: str) -> None:
        """It is being removed."""
        for memory in (self._books, self._changes, self._seen):
            memory.pop(session, None)
        self._keyring.forget(session)
        self._forgotten += 1

    async def reopen(self, session: str) -> Book:
        """A fresh book from the journal: what was staged and not committed is forgotten.

        Raises:
            VerificationFailed: as `open`; also when the journal lost what this process had made durable.
        """
        old = self._books.get(session)
        if old is not None:
            await old.close()  # another's fact may be on its way to the journal: the fresh book must hold it
        book = await self.open(session)
        book.announce()
        return book

    def _book(self, state: SessionState, durable: SessionState, head: Head) -> Book:
        return Book(
            state, durable, head, store=self._store, journal=self._journal, clock=self._clock, changes=self.changes(state.id),
            doubted=lambda: self._doubt(state.id), watch=self._watch,
        )  # fmt: skip

    def changes(self, session: str) -> Changes:
        """Who watches a session goes on watching it when its book is opened again, or for the first time."""
        return self._changes.setdefault(session, Changes(self._stopping))

    def _doubt(self, session: str) -> None:
        self.doubtful.add(session)
        self.doubts.notify()

    async def live(self) -> list[Book]:
        """Books of every session that has not ended, oldest first.

        One whose key is not at hand is left out and noted in `away`.
        One that does not verify is left out, named in the log, and refused to whoever asks for it; it must not stop the others.
        """
        statement = select(SESSIONS.c.id).where(SESSIONS.c.phase.not_in(FINAL)).order_by(SESSIONS.c.number)
        found = [await self._trusted(row.id) for row in await self._store.read(lambda c: list(c.execute(statement)))]
        return [book for book in found if book is not None]

    async def _trusted(self, session: str) -> Book | None:
        try:
            return await self.open(session)
        except KeyAway:
            self.away.add(session)
            return None
        except Unavailable:
            raise  # the database is away: that says nothing of the session
        except GputError as error:
            if session not in self._refused:
                _log.error(
                    "session refused", session=session, code=error.code, detail=error.detail, exc_info=error.__cause__
                )
            self._refused.add(session)
            return None

    def phases(self) -> list[SessionPhase]:
        """Of every session in memory that has not ended."""
        books = list(self._books.values())  # asked by whoever scrapes, on another thread
        return [book.durable.phase for book in books if not book.durable.ended]

    async def page(self, after: int, limit: int, phase: str | None = None) -> list[dict[str, Any]]:
        """Rows of sessions in order of submission, as `listed`."""
        statement = select(*LISTED).where(SESSIONS.c.number > after).order_by(SESSIONS.c.number).limit(limit)
        if phase is not None:
            statement = statement.where(SESSIONS.c.phase == phase)
        return await self._store.read(lambda connection: listed(connection, statement))

    async def recently_ended(self, limit: int) -> list[dict[str, Any]]:
        """Rows of the sessions that ended last, newest first, as `listed`."""
        ended = select(*LISTED).where(SESSIONS.c.phase.in_(FINAL))
        statement = ended.order_by(SESSIONS.c.updated_at.desc()).limit(limit)
        return await self._store.read(lambda connection: listed(connection, statement))

    async def manifests(self, sessions: Collection[str]) -> dict[str, bytes]:
        """The stored manifests of these sessions, not verified."""
        return await self._store.read(lambda connection: manifests(connection, sessions))

    async def row(self, session: str) -> dict[str, Any]:
        """A session's row. Raises: NotFound. VerificationFailed: it cannot be read."""
        require_session_id(session)
        found = await self._store.read(lambda connection: whole_row(connection, session))
        if found is None:
            raise no_session(session)
        return found
