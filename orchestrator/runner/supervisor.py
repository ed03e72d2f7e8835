"""Which session runs on which GPU: one lease a GPU, and of those that wait for it, agreed, the one submitted first. Knows
no visit.

A paused session keeps its lease, since its model is in the GPU, until it is resumed or has been paused for as long as it may be; its
runner sees to that.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from orchestrator.holders.channels import Channels
from orchestrator.runner.awaited import Awaited
from orchestrator.runner.house import House
from orchestrator.runner.recoveries import Recoveries
from orchestrator.runner.session_runner import SessionRunner
from orchestrator.sessions.book import Book
from orchestrator.sessions.facts import new_fact
from orchestrator.sessions.owners_words import cancels, pauses, resumes
from orchestrator.sessions.state import SessionState
from orchestrator.visits.abandon import forsake_open
from shared.errors import Conflict, GputError, Unavailable
from shared.names import Role, SessionPhase
from shared.protocol.session import SessionFact
from shared.service.data_dir import DISK_TROUBLE
from shared.service.logging import bind_afresh, get_logger

_log = get_logger("supervisor")
LOOK_AGAIN_S = 2.0
"""How often the sessions are looked through on nobody's behalf, at most."""
LONG_S = 3600.0
ABANDON_S = 1.0
"""After which a runner that is being ended is told again."""


class Supervisor:
    """Runners by session, leases by GPU."""

    def __init__(self, house: House) -> None:
        self._house = house
        self.recoveries = Recoveries(house, self._recovered)
        self._leases: dict[str, str] = {}
        self._runners: dict[str, SessionRunner] = {}
        self._tasks: dict[str, asyncio.Task[None]] = {}
        self.awaited = Awaited(house, self._runners, self._leases, self.recoveries)
        self._stopping = False
        self._settling: asyncio.Task[None] | None = None
        self._unread: str | None = None  # why the sessions could not be looked for, if they could not

    async def start(self) -> None:
        """Take up every session that was running or ready, oldest first; running ones have the older right to their GPU."""
        self._settling = asyncio.create_task(self._settle(self._house.catalogue.doubts.version), name="doubts")
        await self._take_up()

    async def _take_up(self) -> None:
        books = await self._house.catalogue.live()
        for book in sorted(books, key=lambda b: b.state.placement is None):
            if book.state.phase in (SessionPhase.RUNNING, SessionPhase.PAUSED):
                self._leases.setdefault(book.state.gpu, book.state.id)
        await self._launch_all()

    async def _recovered(self) -> None:
        try:
            await self._take_up()
        except Unavailable:
            self._house.catalogue.doubts.notify()

    async def _launch_all(self) -> None:
        held = {**self._leases}
        books = await self._house.catalogue.live()
        living = {book.state.id for book in books}
        for gpu, session in held.items():
            # Its journal was tampered with while it ran: nobody can say what becomes of it, and others wait for the GPU.
            if session not in self._runners and session not in living:
                self.release(gpu, session)
        if not self._stopping:
            await self.recoveries.look()
        for book in books:
            state = book.state
            if self._stopping:
                return
            if state.id in self._runners:
                continue
            # An agreement that is on its way to the database may not arrive: what begins before it is durable would fail for want of it.
            phases = {state.phase, book.durable.phase}
            if phases <= {SessionPhase.READY, SessionPhase.RUNNING}:
                self._leases.setdefault(state.gpu, state.id)
            elif phases != {SessionPhase.PAUSED}:  # a paused one takes no GPU, and keeps what it has for so long
                continue
            if self._leases.get(state.gpu) == state.id:
                self._launch(book)

    def _launch(self, book: Book) -> None:
        runner = SessionRunner(self._house, book)
        session = book.state.id
        self._runners[session] = runner
        with bind_afresh(session=session):  # whoever's request led here: its id is not this task's
            self._tasks[session] = asyncio.create_task(self._drive(runner), name=f"session {session}")

    async def _drive(self, runner: SessionRunner) -> None:
        session = runner.book.state.id
        try:
            await runner.drive()
        except GputError as error:  # the database is away even for saying that the session failed: look again later
            _log.error("runner ended", session=session, code=error.code, detail=error.detail)
            self._house.catalogue.doubts.notify()
        finally:
            self._runners.pop(session, None)
            self._tasks.pop(session, None)
        if runner.book.durable.ended:
            self._ended(runner.book)
            await self.look()

    async def _settle(self, seen: int) -> None:
        """Whoever brings a fact takes the step that follows from it. Where the commit failed and the fact may stand all the same, nobody
        did: its sessions are read again here, as after a restart."""
        catalogue = self._house.catalogue
        while True:
            seen = await catalogue.doubts.wait(seen, LONG_S)
            try:
                await self.look()
            except Exception as error:  # else nobody would ever look again
                _log.error("a bug broke the look at the sessions", exc_info=error)
            await asyncio.sleep(LOOK_AGAIN_S)

    async def look(self) -> None:
        """Start every session that can run now, and ask for the shares of those whose key is away; while the database is away, as soon as
        it is back. What led here stands, come what may."""
        try:
            await self._read_again()
            await self._launch_all()
            self._unread = None
        except Unavailable as error:
            if error.code != self._unread:  # asked every few seconds, for as long as the database is away
                _log.warning("sessions cannot be looked for", code=error.code, detail=error.detail)
            self._unread = error.code
            self._house.catalogue.doubts.notify()

    async def _read_again(self) -> None:
        catalogue = self._house.catalogue
        for session in sorted(catalogue.doubtful):
            try:
                book = await catalogue.open(session)
            except Unavailable:
                raise
            except GputError as error:
                _log.error("session cannot be read again", session=session, code=error.code, detail=error.detail)
            else:
                if book.durable.ended and session not in self._runners:
                    self._ended(book)
            catalogue.doubtful.discard(session)

    def _ended(self, book: Book) -> None:
        self._tell_end(book)
        self.release(book.durable.gpu, book.durable.id)

    def release(self, gpu: str, session: str) -> None:
        """Give a lease back."""
        if self._leases.get(gpu) == session:
            del self._leases[gpu]

    def _tell_end(self, book: Book) -> None:
        for entry in book.durable.manifest.roster:
            self._house.inboxes.post(
                entry.holder, kind="ended", session=book.durable.id, phase=book.durable.phase.value
            )
        book.announce()

    def leased_to(self, gpu: str) -> str | None:
        """The session that has the GPU."""
        return self._leases.get(gpu)

    def runner(self, session: str) -> SessionRunner | None:
        """The session's runner, if one is at work."""
        return self._runners.get(session)

    async def check(self) -> None:
        """For readiness: no session stands still because this service cannot keep its files. Raises: Unavailable."""
        for session, runner in self._runners.items():
            # A peer's trouble is not this service's, and its database has a check of its own.
            if runner.trouble is not None and runner.trouble.code in DISK_TROUBLE:
                raise Unavailable(f"{session} waits: {runner.trouble.advice}", code=runner.trouble.code)

    # ------------------------------------------------------------ owners' words

    async def pause(self, book: Book, by: str) -> None:
        """Pause at the end of the running visit; durable when this returns. Raises: Conflict: not running."""
        state = book.state
        if await _judged(book, pauses):
            book.stage(new_fact(SessionFact.PAUSE_ASKED, Role.OWNER, party=by))
        await book.commit()  # another's word for it may only be on its way to the journal
        runner = self._runners.get(state.id)
        if runner is not None and state.pause_asked:  # it may have paused, or been resumed, in the meantime
            runner.wishes.wish("pause", by)

    async def resume(self, book: Book, by: str) -> None:
        """Go on. Raises: Conflict: not paused."""
        if not await _judged(book, resumes):
            await book.commit()
            return
        was, runner = book.state.phase, self._runners.get(book.state.id)
        if was is SessionPhase.RUNNING and runner is not None:
            runner.wishes.pause = False
        await book.record(new_fact(SessionFact.RESUMED, Role.OWNER, party=by))
        if was is SessionPhase.PAUSED:
            await self.look()

    async def cancel(self, book: Book, by: str) -> None:
        """End the session; durable when this returns. Raises: Conflict: it has ended otherwise."""
        news = await _judged(book, cancels)
        if book.state.phase is SessionPhase.CANCELLED:
            await book.commit()
            return
        runner = self._runners.get(book.state.id)
        if runner is not None:
            if news:
                book.stage(new_fact(SessionFact.CANCEL_ASKED, Role.OWNER, party=by))
            await book.commit()
            runner.wishes.wish("cancel", by)
            runner.recall_current("the owner cancelled the session")
            return
        forsake_open(book, "its session was cancelled")  # what its last life left open, where none came after it
        await book.record(new_fact(SessionFact.CANCELLED, Role.OWNER, party=by))
        self._ended(book)
        await self.look()

    async def stop(self) -> None:
        """The process stops: every runner ends within seconds, its state durable."""
        self._stopping = True
        await self.recoveries.stop()
        await self._settle_no_more()
        pairs = [(self._runners[session], task) for session, task in self._tasks.items()]
        await asyncio.gather(*(runner.stop(task) for runner, task in pairs))

    async def abandon(self) -> None:
        """Another orchestrator leads, or may: every runner ends at once, wherever it stands. The GPU is left to who leads."""
        self._stopping = True
        await self.recoveries.stop()
        await self._settle_no_more()
        left = {*self._tasks.values()}
        while left:
            for task in left:
                task.cancel()
            _, left = await asyncio.wait(left, timeout=ABANDON_S)

    async def _settle_no_more(self) -> None:
        if self._settling is not None:
            self._settling.cancel()
            await asyncio.wait([self._settling])

    def has_channel(self, session: str, holder: str) -> bool:
        """Whether the holder's channel is open, for the session's page."""
        runner = self._runners.get(session)
        return runner is not None and runner.channels is not None and runner.channels.is_open(holder)

    def dismiss(self, holder: str, why: str) -> None:
        """Call back what is away to a holder whose key counts no more, in every session; without it, it opens no channel again."""
        for runner in self._runners.values():
            runner.recall_current(why, holder)
            if runner.channels is not None:
                runner.channels.dismiss(holder)

    def channels(self, session: str) -> Channels:
        """The session's channels. Raises: Unavailable: no life stands at the moment."""
        runner = self._runners.get(session)
        if runner is None or runner.channels is None or runner.run is None or runner.run.state.placement is None:
            raise Unavailable("The session has no life on the GPU at the moment", code="session-not-running",
                              remedy="Wait for channel_wanted in the inbox.")  # fmt: skip
        return runner.channels


async def _judged(book: Book, judge: Callable[[SessionState], bool]) -> bool:
    """What `judge` says. Nobody is refused for what no journal has yet: the end that a session seems to have may be on its way there, and
    be lost.

    Raises:
        Conflict: what was staged is durable. Unavailable: the database refused it.
    """
    try:
        return judge(book.state)
    except Conflict:
        await book.commit()
        raise
