"""One session from ready to its end: opens a life, recovers, travels; when a life breaks, opens the next. Knows no HTTP route.

A broken life (GPU agent, platform or database gone) is met exactly as a restart of this process is: the journal is folded again and a new
life opened. So there is one recovery, and it runs in daily use.
"""

from __future__ import annotations

import asyncio
from dataclasses import replace

from orchestrator.gpu_session.checkpoints import Checkpoints
from orchestrator.gpu_session.ending import end_session
from orchestrator.gpu_session.opening import OpenedLife, Opener
from orchestrator.gpu_session.placement import Placer
from orchestrator.holders.channels import Channels
from orchestrator.holders.proofs import Prover
from orchestrator.runner.heads import Heads
from orchestrator.runner.house import House
from orchestrator.runner.pace import CheckpointPace, expected_cost
from orchestrator.runner.patience import Patience
from orchestrator.runner.pausing import stand_still
from orchestrator.runner.recovery import first_placement, restore, resume
from orchestrator.runner.rounds import Rounds
from orchestrator.runner.wishes import Wishes
from orchestrator.sessions.book import Book
from orchestrator.sessions.facts import failed, new_fact
from orchestrator.sessions.keyring import KeyAway
from orchestrator.sessions.succession import ROLLED_BACK
from orchestrator.visits.abandon import forsake_open
from orchestrator.visits.run import Run
from shared.canonical.zeros import zeros_digest
from shared.claims.layout import plan_memory
from shared.crypto.signing import PartyKey
from shared.errors import Conflict, GputError, Unavailable
from shared.names import Role, SessionPhase
from shared.protocol.session import SessionFact
from shared.service.logging import get_logger
from shared.wire.visit import GpuEvidence, Signed

_log = get_logger("runner")
STOP_S = 8.0
"""For the visit that trains and for a checkpoint; what stops services allows ten seconds and more. Then the last checkpoint has to do."""
AWAY_S = 2.0
"""How often a database that cannot be read is tried again, while no life stands."""


class SessionRunner:
    """The task of one session. `channels` and `run` exist while a life stands; `heads` are asked for once, before the first;
    `trouble` is what broke the last life, until the next one stands."""

    def __init__(self, house: House, book: Book) -> None:
        self._house = house
        self.book = book
        self.wishes = Wishes.of(book.state, book.changes)
        self.heads = Heads(house.entropy)
        self.channels: Channels | None = None
        self.run: Run | None = None
        self.trouble: GputError | None = None

    async def drive(self) -> None:
        """Until the session ends or the process stops."""
        patience = Patience()
        while not self.wishes.stop and not self.book.state.ended:
            tried = self.wishes.idle(self.heads.confirmed)
            try:
                await self._step()
            except GputError as error:
                wait_s = patience.left(error, self.book.state.visits_closed)
                if wait_s is None:
                    await self._fail(error)
                    return
                _log.warning("life broke", session=self.book.state.id, code=error.code, detail=error.detail)
                await self._wait(error, wait_s, tried)
            except Exception as error:
                _log.exception("a bug ended the session", session=self.book.state.id, exc_info=error)
                await self._fail(GputError(f"internal fault ({type(error).__name__}); see the log"))
                return
            finally:
                self._drop_life()

    async def _step(self) -> None:
        """What comes next while no life stands: the owner's word, a pause, the holders' heads, and only then a life."""
        if self.wishes.cancel:
            await self._cancel()
        elif self.book.state.phase is SessionPhase.PAUSED:
            await self._paused()
        elif await self._confirmed():
            await self._life()
        elif self.wishes.pause:  # the GPU was not touched: what it holds, it keeps
            await self.book.record(new_fact(SessionFact.PAUSED, Role.OWNER, party=self.wishes.by))
            self.wishes.pause = False

    async def _confirmed(self) -> bool:
        """Whether the holders have confirmed the log that this process found in its database (design 4.3, "Storage is hostile")."""
        book = self.book
        if book.state.phase is SessionPhase.READY:
            await book.record(new_fact(SessionFact.STARTED, gpu=book.state.gpu))
        return await self.heads.collect(book, self._house.inboxes, self.wishes)

    async def _wait(self, error: GputError, seconds: float, tried: bool) -> None:
        """Until the next life may be tried, over a fresh book. While the database cannot be read no other runner would do better, and
        would ask the holders for their heads once more.

        Not shortened by what others say meanwhile: whoever repeats a word could use up the session's lives with it. Nor by a wish that
        only a life fulfils; nor, where one that needs none was `tried` in vain, by that.
        """
        while True:
            self.trouble = error
            self.wishes.waiting_for = [f"{error.code}: {error.advice}"]
            self.book.announce()
            await self._sit_out(seconds, tried)
            try:
                self.book = await self._house.catalogue.reopen(self.book.state.id)
            except KeyAway:
                raise  # who asks its holders for their shares takes it up again
            except Unavailable as away:
                if self.wishes.stop:
                    return
                self._drop_life()  # this may take long, and nobody is to open a channel to it
                if away.code != error.code:  # every session asks every few seconds
                    told = {"session": self.book.state.id, "code": away.code, "detail": away.detail}
                    _log.warning("session cannot be read", **told)
                error, seconds, tried = away, AWAY_S, True
            else:
                self.wishes.recall(self.book.state)
                return

    async def _sit_out(self, seconds: float, tried: bool) -> None:
        changes, timer = self.book.changes, self._house.timer
        until = timer() + seconds
        while (left := until - timer()) > 0:
            if self.wishes.stop or (self.wishes.idle(self.heads.confirmed) and not tried):
                return
            await changes.wait(changes.version, left)

    def _drop_life(self) -> None:
        run, self.run, self.channels = self.run, None, None
        if run is not None:
            run.give_up()
            run.life.close()
            for visit in run.state.open_visits:
                self._house.arrivals.forget(visit.id)
                self._house.inboxes.withdraw(visit.holder, run.state.id, ("offer",))

    async def _fail(self, error: GputError) -> None:
        _log.error("session failed", session=self.book.state.id, code=error.code, detail=error.detail)
        # A book that was closed by a failed commit cannot say so; the journal can.
        self.book = await self._house.catalogue.reopen(self.book.state.id)
        if not self.book.state.ended:
            if error.code not in ROLLED_BACK:  # that log is not the session's: it gets no leaf more
                forsake_open(self.book, "its session failed")
            await self.book.record(failed(error))
        await self._empty_gpu()

    async def _empty_gpu(self, *, at_home: bool = False) -> None:
        """Neither model nor anybody's records stay in the GPU for nothing; should it not hear us, whoever opens it next wipes it. Where the
        session ended well it is `at_home`, and no platform need be asked."""
        run = self.run
        if run is None:
            return
        try:
            if not at_home:
                await run.journey.back()
            await end_session(run.life)
        except GputError as error:
            _log.warning("an ended session's GPU may not be wiped", session=self.book.state.id, code=error.code)

    # ------------------------------------------------------------ one life

    async def _life(self) -> None:
        book, house = self.book, self._house
        signing_key = PartyKey.generate(house.entropy)
        link, home, sealed = house.link(book.state.gpu), house.mux(book.state.gpu).home, house.sealed(book.state.id)
        prover = house.prover(book, signing_key)
        opened = await Opener(
            book, link, home, sealed, house.gpu, signing_key, prover, house.distrust, house.clock, house.entropy
        ).open()
        run = self.run = await self._make_run(opened, signing_key, prover)
        checkpoints = Checkpoints(house.folder(book.state.id) / "checkpoints", opened.secrets.checkpoint)
        await self._fill(run, opened, checkpoints)
        self.trouble, self.wishes.waiting_for = None, []
        for holder in run.state.active:
            if run.channels.ask(holder, run.state.manifest.lease_s):  # it may have asked us by itself already
                house.inboxes.post(holder, kind="channel_wanted", session=run.state.id)
        await self._travel(run, opened, checkpoints)

    async def _make_run(self, opened: OpenedLife, signing_key: PartyKey, prover: Prover) -> Run:
        house, book, life = self._house, self.book, opened.life
        state = book.state

        async def attest(challenge: bytes, key: bytes) -> GpuEvidence:
            async with life.home:  # waits while the GPU is at a holder
                try:
                    return await life.evidence(challenge, key, state.last_epoch)
                except Conflict:
                    book.announce()  # who waits for this very channel must see that it cannot come in this life
                    raise

        self.channels = Channels(
            book, signing_key=signing_key, prover=prover, room=house.cpu, attest=attest,
            share=lambda holder: house.keyring.share(state.id, state.manifest, holder), clock=house.clock, timer=house.timer,
        )  # fmt: skip
        settings = house.settings
        return Run(
            book=book, life=life, mux=house.mux(state.gpu), channels=self.channels, inboxes=house.inboxes,
            arrivals=house.arrivals, signing_key=signing_key, program=await house.library.program(state.manifest.program),
            archive=await house.library.archive_bytes(state.manifest.program), gpu=state.gpu,
            agent_url=settings.agent_public_url or settings.agent_url, visit_attempts=settings.visit_attempts,
            copy_chains=settings.copy_chains, clock=house.clock, entropy=house.entropy, timer=house.timer,
            leaving=lambda: self.wishes.cancel or self.wishes.stop,
        )  # fmt: skip

    async def _fill(self, run: Run, opened: OpenedLife, checkpoints: Checkpoints) -> None:
        placer = Placer(run.life, run.state, self._house.library, self._house.entropy)
        inherit = self._house.heritage.restoring(run.life, run.state, opened.secrets.inherited)
        # What a scrubbed buffer has to read back as; beside the loop, for it takes seconds for a large one.
        await asyncio.to_thread(zeros_digest, run.state.manifest.buffer_bytes)
        if opened.resumed:
            await resume(run, placer)
        elif run.state.initial is None:
            await first_placement(run, placer, inherit)
        else:
            await restore(run, placer, checkpoints, inherit)

    async def _travel(self, run: Run, opened: OpenedLife, checkpoints: Checkpoints) -> None:
        house, wishes, settings = self._house, self.wishes, self._house.settings
        manifest, made = run.state.manifest, run.state.checkpoints
        plan = plan_memory(run.program.manifest, manifest.training, manifest.accumulate is not None)
        cost_s = expected_cost(made[-1].seconds if made else None, plan.model.length + plan.optimiser.length)
        pace = CheckpointPace(settings.checkpoint_interval_s, settings.checkpoint_share, run.timer(), cost_s)
        rounds = Rounds(run, wishes, self.heads, checkpoints, pace, house.model(run.state.id))
        if (run.state.manifest.privacy or run.state.inherited) is not None and not run.state.checkpoints:
            # From here on the secret of the noise outlives the GPU's memory, and nothing is needed of a predecessor.
            await rounds.checkpoint()
        await self._drop_inherited(opened, checkpoints)
        while not run.state.ended:
            await rounds.travel()
            if run.state.ended or wishes.cancel or wishes.stop:
                break
            if wishes.pause:
                await rounds.pause()
                await self._paused()
        if wishes.cancel and not run.state.ended:
            try:
                await rounds.leave_for_successor()
            except GputError as error:  # the owner's word counts all the same; an older checkpoint may be there
                _log.warning("a cancelled session was not sealed", session=run.state.id, code=error.code)
            await self._cancel()
        if run.state.ended:
            await self._empty_gpu(at_home=True)
        elif wishes.stop and run.state.phase is SessionPhase.RUNNING:
            await rounds.checkpoint()

    async def _drop_inherited(self, opened: OpenedLife, checkpoints: Checkpoints) -> None:
        """With a checkpoint of its own the session needs no key of its predecessor's any more. Of an earlier life, too: it may have died
        in between."""
        book, secrets = self.book, opened.secrets
        if secrets.inherited is None or checkpoints.usable(book.state.checkpoints) is None:
            return
        book.row(self._house.sealed(book.state.id).saving(replace(secrets, inherited=None)))
        await book.commit()

    async def _cancel(self) -> None:
        forsake_open(self.book, "its session was cancelled")
        await self.book.record(new_fact(SessionFact.CANCELLED, Role.OWNER, party=self.wishes.by))

    async def _paused(self) -> None:
        await stand_still(self.book, self.wishes, self._house.settings.pause_limit_s, self._house.clock)

    # ------------------------------------------------------------ words from outside

    def hear_head(self, holder: str, signed: Signed, public_key: bytes) -> None:
        """A holder's statement of the head it remembers; one that contradicts the log ends the session, whatever is under way.

        Raises:
            BadRequest, NotPermitted, VerificationFailed: it is not this holder's answer to this start.
        """
        if not self.heads.hear(self.book.state, holder, signed, public_key):
            self.recall_current(f"{holder} remembers another log")
        self.book.announce()

    def recall_current(self, reason: str, holder: str | None = None) -> None:
        """Call back the visits that are away (of `holder`, or whosever they are)."""
        for visit in self.book.state.open_visits:
            if holder in (None, visit.holder):
                self._house.arrivals.recall(visit.id, reason, blame=False, own=holder is not None)

    async def stop(self, task: asyncio.Task[None]) -> None:
        """The process stops: recall what is away, seal a checkpoint, and end within seconds whatever happens."""
        self.wishes.wish("stop", "")
        self.recall_current("the orchestrator is stopping")
        _, pending = await asyncio.wait([task], timeout=STOP_S)
        if pending:
            task.cancel()
            await asyncio.wait([task], timeout=1.0)
