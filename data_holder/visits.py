"""One visit at this holder: verify the offer, remember, open the key, provision, report. Knows approvals, channels and the GPU link.

Order of outward acts: the epoch and the log head are committed before the visit key is opened; what was written is committed before it is
reported. A running visit is one task per session; a veto, the session's end, a new channel or a newer offer cancels it.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable

from data_holder.ahead import ReadAhead
from data_holder.approvals import Approvals
from data_holder.bounce import BounceLink
from data_holder.channel import Channels
from data_holder.commitments import Commitments, Committed
from data_holder.deciding import changed, check_rule, read_as_approved
from data_holder.gpu_channel import Provisioner, Sleep
from data_holder.ledger import Ledger
from data_holder.links import GpuLink, OrchestratorLink, document
from data_holder.offers import Admission, Admitted
from data_holder.outward import outward
from data_holder.protocol.visit import HolderFact, HolderPhase
from data_holder.sealing import RecordSealer
from data_holder.visit_facts import VisitFacts
from data_holder.visit_reports import report_of
from shared.attestation.channel import open_offer
from shared.crypto.shares import agreed_visit_key
from shared.crypto.visit_key import VisitKey
from shared.errors import GputError, NotPermitted, Unavailable, VerificationFailed, may_heal
from shared.protocol.membership import NOT_APPROVED
from shared.service.clock import Clock, Entropy
from shared.service.logging import bind, get_logger
from shared.service.metrics import bounded
from shared.wire.visit import OfferDocument, VisitOffer, VisitRefusal

_log = get_logger("data_holder.visits")
_F = HolderFact


class Visits:
    """Serves offers. `gpu_link(url)` gives the link to the agent at that address."""

    def __init__(
        self, *, ledger: Ledger, approvals: Approvals, channels: Channels, commitments: Commitments, link: OrchestratorLink,
        gpu_link: Callable[[str], GpuLink], agent_url: str | None, prepare_bytes: int, clock: Clock, entropy: Entropy,
        facts: VisitFacts, bounce: BounceLink, sleep: Sleep = asyncio.sleep,
    ) -> None:  # fmt: skip
        self._ledger, self._approvals, self._channels, self._commitments = ledger, approvals, channels, commitments
        self._link, self._gpu_link, self._agent_url = link, gpu_link, agent_url
        self._prepare_bytes, self._clock, self._entropy, self._sleep = prepare_bytes, clock, entropy, sleep
        self._facts, self._bounce, self.ahead = facts, bounce, ReadAhead(prepare_bytes)
        self._admission = Admission(ledger, approvals, channels, link, clock)
        self._open: dict[str, Committed] = {}
        self._halted: set[str] = set()
        self._running: dict[str, tuple[int, asyncio.Task[None]]] = {}
        self.refusals: dict[str, int] = {}

    async def offer(self, session: str, offer: VisitOffer) -> None:
        """Serve one offer; a repeat of one that is being served or was served does nothing, or reports again.

        Raises:
            ProtocolViolation: `channel-not-open`, `channel-expired`, `one-time-key-unknown`: open a new channel first.
        """
        seen, state = self._admission.peek(session, offer), self._ledger.state(session)
        if seen.grant.epoch <= state.highest_epoch:
            await self._repeated(session, seen)
            return
        try:
            verified, channel = self._admission.authenticate(session, offer)
        except VerificationFailed as error:
            # Answering an offer that nobody signed would let anybody recall visits.
            await self._turn_away(session, seen, error, answer=error.code.startswith("offer-"))
            return
        try:
            admitted = await self._admission.admit(session, verified, channel)
        except GputError as error:
            await self._turn_away(session, verified.document, error, answer=True)
            return
        try:
            await self.cancel(session, _F.SUPERSEDED)
            await self._facts.admitted(session, admitted)
        except Unavailable as error:
            # What cannot be remembered is not served, and the orchestrator need not wait for the lease's end.
            await self._refuse(seen.grant.visit, seen.grant.epoch, error)
            raise
        if session in self._halted:  # meanwhile; from here to the task, which `halt` finds, nothing is awaited
            await self._give_up(session, admitted, NotPermitted("this holder has vetoed it meanwhile", code="vetoed"))
            return
        with bind(visit=seen.grant.visit):  # the task takes it along
            task = asyncio.create_task(self._serve(session, admitted), name=f"visit {seen.grant.visit}")
        self._running[session] = (seen.grant.epoch, task)

    async def _repeated(self, session: str, seen: OfferDocument) -> None:
        """An epoch seen before: the same offer once more (then its report may have been lost), or an old one. Nothing is sealed."""
        attempt = self._ledger.state(session).attempts.get(seen.grant.epoch)
        if attempt is not None and attempt.phase is HolderPhase.PROVISIONED and session not in self._running:
            await self.report(session, attempt.epoch)
        elif attempt is None:
            _log.warning("old offer ignored", session=session, visit=seen.grant.visit, epoch=seen.grant.epoch)

    async def cancel(self, session: str, fact: HolderFact = _F.ABANDONED) -> None:
        """Stop a running visit of the session and settle every open attempt, REPORTED ones only for SUPERSEDED."""
        running = self._running.pop(session, None)
        if running is not None:
            task = running[1]
            task.cancel()
            await asyncio.wait([task])  # awaiting it would take a cancellation of our own for its
            if not task.cancelled():
                task.result()
        if self._ledger.find(session) is not None:
            await self._facts.settle(session, fact)

    def halt(self, session: str) -> None:
        """Stop a running visit at once, begin none, and report it no more whatever it came to; `close` settles what it leaves."""
        self._halted.add(session)
        running = self._running.get(session)
        if running is not None:
            running[1].cancel()

    async def close(self, session: str) -> None:
        """The session is over for this holder: stop, forget keys, unmap the dataset."""
        await self.cancel(session, _F.SUPERSEDED)
        self._channels.close(session)
        await self._put_away(session)
        await self._forget_tree(session)
        self._halted.discard(session)

    def disconnect(self) -> None:
        """Give back what is shared with the GPU agent (at shutdown)."""
        self._bounce.close()

    async def recover(self) -> None:
        """At start: keys of open attempts are gone, so those without published data are abandoned; the others are reported again."""
        for state in self._ledger.states():
            await self._facts.settle(state.session, _F.ABANDONED)

    def unreported(self) -> list[tuple[str, int]]:
        """(session, epoch) of attempts whose report the orchestrator has not acknowledged, and which nobody serves now."""
        return [
            (state.session, attempt.epoch)
            for state in self._ledger.states()
            for attempt in state.attempts.values()
            if attempt.phase is HolderPhase.PROVISIONED and state.session not in self._running
        ]

    async def _serve(self, session: str, admitted: Admitted) -> None:
        epoch = admitted.document.grant.epoch
        try:
            await self._provision(session, admitted)
            await self.report(session, epoch)
            if (committed := self._open.get(session)) is not None:
                self.ahead.begin(session, committed, admitted.document.grant)
        except Exception as fault:
            # A bug must not leave the GPU waiting for its lease: it is reported like any refusal, and logged in full.
            error = fault if isinstance(fault, GputError) else GputError("the visit failed inside this holder")
            if error is not fault:
                _log.exception("bug while serving a visit", session=session)
            _log.warning("visit failed", session=session, visit=admitted.document.grant.visit, code=error.code)
            # Opened anew for the next attempt: files that changed may be the approved ones again by then.
            await self._put_away(session)
            if error.code == NOT_APPROVED:  # then the kept tree is not that of the files, whatever their dates say
                await self._forget_tree(session)
            await self._give_up(session, admitted, error)
        finally:
            if self._running.get(session, (0, None))[0] == epoch:
                del self._running[session]

    async def _provision(self, session: str, admitted: Admitted) -> None:
        document_, grant = admitted.document, admitted.document.grant
        committed = await self._committed(session, admitted)
        ready = await self.ahead.take(session, committed, grant)
        started = time.perf_counter()
        # Not behind the records: then the orchestrator waits for the report.
        next_key = admitted.channel.new_key()
        made = time.perf_counter()
        key = self._visit_key(admitted)
        import_s = time.perf_counter() - made
        sealer = RecordSealer(grant, key, committed.dataset, ready.membership, self._entropy(32), ready.chunks)
        del key
        attached: list[HolderFact] = []
        await self._bounce.ready()
        provisioner = Provisioner(
            self._gpu_link(self._agent_url or document_.agent_url), self._clock, prepare_bytes=self._prepare_bytes,
            bounce=self._bounce, sleep=self._sleep, attached=lambda: attached.append(_F.ATTACHED),
        )  # fmt: skip
        try:
            done = await provisioner.provision(grant, document_.gpu, sealer)
        except BaseException:
            if attached:
                await self._facts.advance(session, grant.epoch, attached)
            raise
        report = report_of(grant, done, next_key, import_s=import_s, next_s=made - started)
        await self._facts.provisioned(session, grant.epoch, report)

    def _visit_key(self, admitted: Admitted) -> VisitKey:
        """What this visit's records are sealed under: the key in the offer, or the one agreed with the GPU that it salts."""
        grant, offered = admitted.document.grant, admitted.channel.take(admitted.document.one_time_key)
        key = open_offer(admitted.offer, offered.key)
        return key if offered.share is None else agreed_visit_key(key, offered.share, grant)

    async def _committed(self, session: str, admitted: Admitted) -> Committed:
        """The dataset, open, if it is the approved one byte for byte.

        Raises:
            ProtocolViolation: `dataset-changed`. Conflict: `approved-by-older-rule`. UnfitData, NotFound: it cannot be read.
        """
        state, approved = self._ledger.state(session), admitted.approved
        check_rule(state)
        if (known := self._open.get(session)) is None:
            _, program = await self._approvals.show(session)
            with read_as_approved(state, approved.dataset):
                known = await self._commitments.open(session, approved.dataset, program, approved.dataset_root)
            self._open[session] = known
        if known.root != approved.dataset_root:
            await self._put_away(session)
            raise changed(state, approved, known)
        return known

    async def _put_away(self, session: str) -> None:
        await self.ahead.drop(session)
        if (known := self._open.pop(session, None)) is not None:
            known.close()

    async def _forget_tree(self, session: str) -> None:
        """A tree that stays holds up nobody: no end, and no refusal that the GPU waits for. Retention tries again."""
        try:
            await self._commitments.forget(session)
        except Unavailable as error:
            _log.warning("a commitment tree cannot be removed", session=session, code=error.code, detail=error.detail)

    async def report(self, session: str, epoch: int) -> None:
        """Send the committed report's exact bytes. Raises nothing for what may heal: the outbox calls again."""
        attempt = self._ledger.state(session).attempts.get(epoch)
        if attempt is None or attempt.phase is not HolderPhase.PROVISIONED or session in self._halted:
            return
        try:
            path = f"/v1/visits/{attempt.visit}/report"
            await self._link.send("POST", path, attempt.report, idempotency_key=f"report-{session}-{epoch}")
        except GputError as error:
            if may_heal(error):
                _log.warning("report not delivered yet", session=session, visit=attempt.visit, code=error.code)
                return
            _log.warning("the orchestrator does not want the report", session=session, code=error.code)
            await self._note(session, self._facts.advance(session, epoch, [_F.ABANDONED]))
        else:
            await self._note(session, self._facts.advance(session, epoch, [_F.REPORTED]))
            _log.info("visit provisioned and reported", session=session, visit=attempt.visit, epoch=epoch)

    async def _note(self, session: str, fact: Awaitable[None]) -> None:
        """Write down what must not hold up the word to the orchestrator. What is not written stays open: the outbox reports once
        more, and the next offer or the next start settles the attempt."""
        try:
            await fact
        except Unavailable as error:
            _log.warning("not noted yet", session=session, code=error.code, detail=error.detail)

    async def _turn_away(self, session: str, seen: OfferDocument, error: GputError, *, answer: bool) -> None:
        """An offer that is refused: nothing is sealed. Only an authentic one is answered and shown to the operator."""
        _log.error("offer refused", session=session, visit=seen.grant.visit, code=error.code, detail=error.detail)
        code = bounded(error.code)  # it may be a peer's, who could make up any number
        self.refusals[code] = self.refusals.get(code, 0) + 1
        if answer:
            await self._end_by_refusal(session, seen, error, self._facts.refused(session, seen, error))

    async def _give_up(self, session: str, admitted: Admitted, error: GputError) -> None:
        document_ = admitted.document
        await self._end_by_refusal(
            session, document_, error, self._facts.gave_up(session, document_.grant.epoch, error)
        )

    async def _end_by_refusal(self, session: str, seen: OfferDocument, error: GputError, fact: Awaitable[None]) -> None:
        """Whatever fails of noting or saying why, the GPU must not wait for its lease because of it."""
        visit, epoch = seen.grant.visit, seen.grant.epoch
        try:
            await self._note(session, fact)
            await self._refuse(visit, epoch, error)
        except Exception:
            _log.exception("bug while refusing a visit", session=session, visit=visit)
            await self._refuse(visit, epoch, GputError("this holder failed to say why it refused the visit"))

    async def _refuse(self, visit: str, epoch: int, error: GputError) -> None:
        refusal = VisitRefusal(visit=visit, epoch=epoch, code=error.code[:64], detail=outward(error)[:500])
        try:
            await self._link.send(
                "POST", f"/v1/visits/{visit}/refusal", document(refusal), idempotency_key=f"refusal-{visit}-{epoch}"
            )
        except GputError as failure:
            # The lease recalls the visit in any case; the refusal only saves time.
            _log.warning("refusal not delivered", visit=visit, code=failure.code)
