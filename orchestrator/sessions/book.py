"""A session's book: its folded state and the one way to write to it. Knows no GPU, no HTTP, no protocol step.

Facts are *staged* (checked against the tables and applied in memory at once) and *committed* together before the next outward act
that depends on them (design 4.3, 4.7). A failed commit leaves the book unusable: its owner opens it again from the journal.

So there are two folds of one journal. Decisions read `state`, which runs ahead by what is staged. Whoever shows the session reads
`durable`, which a fact enters when its commit has returned: no crash takes back what somebody was shown.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

from sqlalchemy import Connection

from orchestrator.sessions.state import SessionState
from orchestrator.sessions.telling import Telling
from orchestrator.sessions.views import summary
from orchestrator.sessions.visit_state import VisitState
from orchestrator.sessions.watching import Noted, Watcher
from orchestrator.tables import SESSIONS, VISITS
from shared.errors import Unavailable
from shared.service.changes import Changes
from shared.service.clock import Clock
from shared.service.journal import Head, Journal, NewFact
from shared.service.statements import insert_row, update_row
from shared.service.store import Store

Row = Callable[[Connection], object]
"""A projection written in the same transaction as the facts it follows from."""


class Book:
    """One session, in memory and on disk. All calls come from the event loop's thread.

    `durable` begins as the state's twin. `head` is the journal's end as this process last saw it durable: whoever opens the book again
    finds it there, or somebody cut it off. `told`: the same journal, for who watches. `doubted` is told when a commit failed: it may have
    taken effect all the same, and nobody else may be left to act on it. `watch` is told of each fact once it is durable.
    """

    def __init__(
        self, state: SessionState, durable: SessionState, head: Head, *, store: Store, journal: Journal, clock: Clock, changes: Changes,
        doubted: Callable[[], None], watch: Watcher = lambda noted: None,
    ) -> None:  # fmt: skip
        self.state, self.durable, self.head = state, durable, head
        self.changes, self.told = changes, Telling(state.id, head, store=store, journal=journal)
        # For who reads what is written down and then stages: nobody else's turn comes between.
        self.turn = asyncio.Lock()
        self._store, self._journal, self._clock, self._doubted, self._watch = store, journal, clock, doubted, watch
        self._written = state.seq
        self._facts: list[NewFact] = []
        self._rows: list[Row] = []
        self._new_visits: set[str] = set()
        self._touched: dict[str, VisitState] = {}
        # The write that is still to take up what was staged, while `_due`; and the newest that has: all before it are durable with it.
        self._writing: asyncio.Future[None] | None = None
        self._newest: asyncio.Future[None] | None = None
        self._due = False
        self.closed = False
        self._shown: tuple[Any, ...] = ()

    def stage(self, fact: NewFact, *rows: Row) -> None:
        """Check `fact` against the tables, apply it, and remember it for the next commit.

        Raises:
            ProtocolViolation: the tables do not allow it; nothing changed.
        """
        self.require_open()
        before = self.state.open_visits
        self.state.apply(fact.kind, fact.body, self._clock())
        self._facts.append(NewFact(fact.kind, {**fact.body, **self._seen(fact, before)}))
        self._rows.extend(rows)
        self._track(before)

    def row(self, row: Row) -> None:
        """A projection that goes with the next commit."""
        self._rows.append(row)

    async def commit(self) -> None:
        """Everything staged so far, by whomever, is durable when this returns.

        Raises:
            Unavailable, Conflict: the database refused; the book is closed for good.
        """
        self.require_open()
        if self._facts or self._rows:
            if not self._due:  # a write that has not begun takes up what was staged since
                self._due = True
                self._writing = asyncio.ensure_future(self._write())
            waited = self._writing
        else:
            waited = self._newest
        if waited is not None:
            await asyncio.shield(waited)

    def begin_commit(self) -> None:
        """Everything staged so far is on its way to the database when this returns; `commit` tells when it is durable.

        Raises:
            Unavailable: the book is closed.
        """
        self.require_open()
        if self._facts or self._rows:
            self._newest = asyncio.ensure_future(self._settled(*self._sent()))

    async def record(self, fact: NewFact, *rows: Row) -> None:
        """`stage` and `commit`."""
        self.stage(fact, *rows)
        await self.commit()

    def announce(self) -> None:
        """Wake everybody who watches the session (nothing durable changed)."""
        self.changes.notify()

    async def close(self) -> None:
        """Nothing more is written by this book; what it is writing is waited for. What was only staged is forgotten."""
        self.closed = True
        if writing := [write for write in (self._writing, self._newest) if write is not None]:
            await asyncio.wait(writing)

    def require_open(self) -> None:
        """For who only waits: what is written about the session from now on is in this book. Raises: Unavailable."""
        if self.closed:
            raise Unavailable(
                "The session's book is closed and will be opened again from its journal", code="book-closed"
            )

    def _seen(self, fact: NewFact, before: tuple[VisitState, ...]) -> dict[str, Any]:
        """What readers of events want beside a fact: the phase it led to, and whose visit it is. No decision reads it."""
        machine = fact.kind.partition(".")[0]
        visit = next((v for v in (*self.state.open_visits, *before) if v.id == fact.body.get("visit")), None)
        if machine not in ("visit", "training") or visit is None:
            return {"phase": self.state.phase.value}
        return {
            "phase": visit.shown_phase, "holder": visit.holder, "round": visit.round, "index": visit.index,
            "attempt": visit.attempt,
        }  # fmt: skip

    def _track(self, before: tuple[VisitState, ...]) -> None:
        """Remember whose rows the next commit writes; what stands in them is what the visits are by then."""
        after = self.state.open_visits
        self._new_visits |= {visit.id for visit in after} - {visit.id for visit in before}
        self._touched |= {visit.id: visit for visit in (*before, *after)}

    def _visit_rows(self) -> tuple[dict[str, dict[str, Any]], dict[str, dict[str, Any]]]:
        """Views of the visits that are new in the database, and of those that changed; the next commit begins anew."""
        new, touched = self._new_visits, self._touched
        self._new_visits, self._touched = set(), {}
        views = {visit.id: {"number": visit.number, **visit.view(self.state.id)} for visit in touched.values()}
        return {name: views.pop(name) for name in list(views) if name in new}, views

    async def _write(self) -> None:
        self._due = False
        if self._facts or self._rows:
            self._newest = self._writing
            await self._settled(*self._sent())
        elif self._newest is not None:  # somebody has begun it meanwhile: whoever waits here waits for that
            await asyncio.shield(self._newest)

    def _sent(self) -> tuple[asyncio.Future[Head], list[NewFact], float]:
        """What was staged, in the writer's queue; the write, its facts, and the moment that they have."""
        facts, rows, (new, changed) = self._facts, self._rows, self._visit_rows()
        self._facts, self._rows = [], []
        expected, at = self._written, self.state.updated_at if facts else self._clock()
        self._written += len(facts)
        session, values = self.state.id, self._projection()

        def act(connection: Connection) -> Head:
            head = self._journal.append(connection, session, facts, expected_seq=expected, at=at)
            update_row(connection, SESSIONS, {"id": session}, values)
            _write_visits(connection, session, new, changed)
            for row in rows:
                row(connection)
            return head

        try:
            return self._store.enqueue(act), facts, at
        except BaseException:
            self._broken()
            raise

    async def _settled(self, write: asyncio.Future[Head], facts: list[NewFact], at: float) -> None:
        try:
            self.head = await write
        except BaseException:
            self._broken()
            raise
        for fact in facts:
            self.durable.apply(fact.kind, fact.body, at)
            self._watch(Noted(self.state.id, fact.kind, fact.body, at))
        self.changes.notify()

    def _broken(self) -> None:
        self.closed = True
        self._doubted()
        self.changes.notify()  # who waits with this book in its hand must fetch another

    def _projection(self) -> dict[str, Any]:
        """The session's row: its summary only when a listing would read differently (it grows with the roster)."""
        state = self.state
        shown = (
            state.phase,
            state.position,
            state.visits_closed,
            tuple(state.decisions.items()),
            tuple(state.datasets.values()),  # an approval may come again, with a corrected profile
            state.exported is None,
            state.backend,
            tuple(state.quarantined),
            state.stopped,
        )
        if shown == self._shown:
            return {"version": state.seq, "updated_at": state.updated_at}
        self._shown = shown
        return {
            "phase": state.phase.value, "version": state.seq, "updated_at": state.updated_at, "summary": summary(state),
        }  # fmt: skip


def _write_visits(
    connection: Connection, session: str, new: dict[str, dict[str, Any]], changed: dict[str, dict[str, Any]]
) -> None:
    for visit, view in (new | changed).items():
        data = {key: value for key, value in view.items() if key != "number"}
        row = {"phase": view["phase"], "data": data}
        if visit in new:
            insert_row(
                connection, VISITS,
                {"id": visit, "session": session, "number": view["number"], "holder": view["holder"], **row},
            )  # fmt: skip
        else:
            update_row(connection, VISITS, {"id": visit}, row)
