"""The holder's engine: a standing long-poll at the orchestrator, one worker per session, and an outbox that tries again. Outbound only.

The inbox starts at 0 at every start of this process: the orchestrator then says again what still matters. Everything that arrives twice is
recognised by its meaning. Whatever could not be delivered lies in the journal and is sent until acknowledged.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from functools import partial

from data_holder.approvals import Approvals
from data_holder.catalogue import Catalogue
from data_holder.channel import Channels
from data_holder.commitments import Commitments
from data_holder.considering import Considering
from data_holder.ending import Ending
from data_holder.heads import HeadStatements
from data_holder.keyring import Keyring, Keys
from data_holder.ledger import Ledger
from data_holder.links import OrchestratorLink
from data_holder.listening import FIRST_PAUSE_S, LAST_PAUSE_S, Listening
from data_holder.never_begun import NeverBegun
from data_holder.opening import Openings
from data_holder.receipt_book import ReceiptBook
from data_holder.recovery import ShareBook
from data_holder.repeats import Item, Repeats, kind_of
from data_holder.retention import Retention
from data_holder.share_release import ShareRelease
from data_holder.strangers import Strangers
from data_holder.visits import Visits
from shared.attestation.one_time_keys import decoded
from shared.errors import GputError, ProtocolViolation, Unavailable
from shared.service.changes import Stopping
from shared.service.clock import Clock
from shared.service.logging import bind_afresh, get_logger
from shared.service.retention import again_and_again
from shared.service.trouble import Trouble
from shared.wire.visit import InboxItem

TEND_S = 1.0
_log = get_logger("data_holder.runner")
Act = Callable[[], Awaitable[None]]


class Runner:
    """`run` lives as long as the service."""

    def __init__(
        self, *, ledger: Ledger, approvals: Approvals, heads: HeadStatements, channels: Channels, visits: Visits,
        receipts: ReceiptBook, catalogue: Catalogue, commitments: Commitments, shares: ShareBook, release: ShareRelease,
        link: OrchestratorLink, keyring: Keyring, wait_s: int, stopping: Stopping, retention: Retention,
        clock: Clock,
    ) -> None:  # fmt: skip
        self._ledger, self._approvals, self._heads = ledger, approvals, heads
        self._visits = visits
        self._receipts, self._keyring = receipts, keyring
        self._catalogue, self._commitments, self._shares = catalogue, commitments, shares
        self._stopping, self.retention = stopping, retention
        self._ending = Ending(ledger, approvals, receipts, link)
        self._never_begun = NeverBegun(ledger, approvals, link.unhurried, clock)
        self._release, self.listening = release, Listening(link, wait_s, stopping)
        self._queues: dict[str, asyncio.Queue[Item]] = {}
        self._workers: dict[str, asyncio.Task[None]] = {}
        self._strangers = Strangers(self._of_stranger)
        self._again = Repeats()
        self._undone: dict[tuple[str, str], Trouble] = {}
        self._openings = Openings(
            ledger=ledger, approvals=approvals, channels=channels, visits=visits, ending=self._ending, trouble=self._trouble,
        )  # fmt: skip
        self._considering = Considering(approvals, ledger, self._trouble)
        self.distrust = self._openings.distrust
        approvals.on_veto = self._vetoed

    async def run(self) -> None:
        """Until stopped: unlock the journal, settle what a crash left open, then listen and tend."""
        if not (await self._once(self._unlock) and await self._once(self._begin)):
            return
        works = (
            self.listening.run(self._take_in), self._tend(), self._strangers.run(), again_and_again(self.retention.sweep),
            again_and_again(self._end_unbegun, undone="not known which sessions go on"),
        )  # fmt: skip
        tasks = [asyncio.create_task(work) for work in works]
        try:
            await asyncio.gather(*tasks)
        finally:
            for task in (*tasks, *self._workers.values()):
                task.cancel()
            await asyncio.gather(*tasks, *self._workers.values(), return_exceptions=True)
            for state in self._ledger.states():
                await self._visits.cancel(state.session)

    async def _unlock(self) -> None:
        await self._keyring.unlock(self._use)

    async def _use(self, keys: Keys) -> None:
        await self._ledger.open(keys.journal)
        self._commitments.unlock(keys.commitments)
        self._shares.unlock(keys.commitments)
        await self._catalogue.unlock(keys.commitments)

    async def _once(self, act: Act) -> bool:
        """Try until it is done, however long enclave or database are away; False when stopping."""
        pause, waiting = FIRST_PAUSE_S, Trouble(_log, "not serving yet")
        while not self._stopping.is_set:
            try:
                await act()
            except Unavailable as error:
                waiting.met(error)
            else:
                waiting.over()
                return True
            if await self._stopping.wait(pause):
                return False
            pause = min(pause * 2, LAST_PAUSE_S)
        return False

    async def _begin(self) -> None:
        await self._considering.warn_of_unknown()
        await self._visits.recover()
        await self._reopen_channels()

    async def _reopen_channels(self) -> None:
        """Keys lived in memory only, and the orchestrator cannot know that they are gone: say so by opening new channels first."""
        for state in self._ledger.states():
            if state.channels and state.ended is None:
                await self._try(state.session, partial(self._openings.open_again, state.session))

    def _take_in(self, item: InboxItem) -> None:
        if self._again.takes(item.session, item):
            self._hand_on(item.session, item)

    def _hand_on(self, session: str, item: Item) -> None:
        if isinstance(item, InboxItem) and item.kind == "ended":
            self._considering.leave(session)  # which may read its data for hours, and is done before
        if not isinstance(item, InboxItem) or item.kind == "approval_wanted" or self._is_served(session):
            self._enqueue(session, item)
        else:
            self._strangers.take(item)

    def _is_served(self, session: str) -> bool:
        """Whether it was offered here, or may just be."""
        return session in self._queues or self._ledger.knows(session)

    async def _of_stranger(self, item: InboxItem) -> None:
        if self._is_served(item.session):  # by now
            self._enqueue(item.session, item)
            return
        with bind_afresh(session=item.session):
            await self._do(item.session, item)
        self._forget_trouble(item.session)

    def _enqueue(self, session: str, item: Item) -> None:
        """Items of one session are handled in order by its worker; sessions do not wait for one another."""
        if session not in self._queues:
            self._queues[session] = asyncio.Queue()
            self._workers[session] = asyncio.create_task(self._work(session, self._queues[session]))
        self._queues[session].put_nowait(item)

    def _vetoed(self, session: str) -> None:
        self._visits.halt(session)  # before anything else that the session's worker may be busy with
        self._enqueue(session, "veto")

    async def _work(self, session: str, queue: asyncio.Queue[Item]) -> None:
        with bind_afresh(session=session):
            await self._work_off(session, queue)

    async def _work_off(self, session: str, queue: asyncio.Queue[Item]) -> None:
        while True:
            item = await queue.get()
            if self._again.takes(session, item):  # what it is said behind may have failed meanwhile
                await self._do(session, item)
            if queue.empty() and not self._openings.goes_on(session):
                # Nothing more comes of a session that has ended, or that somebody made up. Nothing is awaited from here on: what comes
                # next begins another worker.
                self._forget(session)
                return

    async def _do(self, session: str, item: Item) -> None:
        kind = kind_of(item)
        # The orchestrator says a thing once; an offer it repeats, after the refusal that it got for this one.
        again = kind != "offer"
        try:
            if isinstance(item, InboxItem):
                await self._handle(item)
            elif item == "veto":
                await self._visits.close(session)
            else:
                await self._considering.consider(session)
            self._trouble(session, f"{kind} not done yet").over()
            again = False
        except Unavailable as error:
            self._trouble(session, f"{kind} not done yet").met(error)
        except GputError as error:
            _log.error("inbox item failed", session=session, kind=kind, code=error.code, detail=error.detail)
            again = False
        except Exception as error:
            # A defect must not end what serves the session: nobody would ever hear of it again.
            self._trouble(session, f"{kind} not done yet").fault(error)
            again = again and kind != "consider"  # when to consider it again, it remembers itself
        if again:
            self._again.failed(session, item)
        else:
            self._again.done(session, item)

    def _forget(self, session: str) -> None:
        del self._queues[session], self._workers[session]
        self._forget_trouble(session)

    def _forget_trouble(self, session: str) -> None:
        if not self._again.of(session):  # what is tried again is said once
            self._undone = {key: trouble for key, trouble in self._undone.items() if key[0] != session}

    async def _handle(self, item: InboxItem) -> None:
        session = item.session
        if item.kind == "approval_wanted" and item.manifest is not None:
            owner = None
            if item.owner_key is not None and item.owner_signature is not None:
                owner = bytes.fromhex(item.owner_key), decoded(item.owner_signature)
            await self._approvals.receive(session, decoded(item.manifest), owner)
            await self._ending.asked_again(session)
            self._consider(session)
        elif item.kind == "head_wanted" and item.challenge is not None:
            await self._heads.asked(session, item.challenge)
        elif item.kind == "channel_wanted":
            await self._openings.open(session)
        elif item.kind == "share_wanted":
            await self._release.wanted(session)
        elif item.kind == "offer" and item.offer is not None:
            try:
                await self._visits.offer(session, item.offer)
            except ProtocolViolation as error:
                _log.warning("offer without a usable channel", session=session, code=error.code)
                await self._openings.open(session)
        elif item.kind == "receipt" and item.receipt is not None and item.receipt_index is not None:
            await self._receipts.receive(session, decoded(item.receipt), item.receipt_index)
        elif item.kind == "ended":
            await self._visits.close(session)
            await self._ending.hear(session, item.phase)  # said again at every start

    def _consider(self, session: str) -> None:
        """Have it considered by its own worker, since hashing its data may take hours; once, however often that is wanted."""
        if self._considering.take(session):
            self._enqueue(session, "consider")

    async def _end_unbegun(self) -> None:
        for item in await self._never_begun.ends():
            self._hand_on(item.session, item)

    async def _tend(self) -> None:
        """What was not delivered or not done, once a second while there is anything."""
        tending = Trouble(_log, "cannot tend to what is undelivered")
        while not await self._stopping.wait(TEND_S):
            try:
                await self._tend_once()
            except GputError as error:
                tending.met(error)
            except Exception as error:  # it would end the listening as well: nobody would ever hear of a session again
                tending.fault(error)
            else:
                tending.over()

    async def _tend_once(self) -> None:
        for session, item in self._again.due():
            self._hand_on(session, item)
        for session in await self._approvals.delivery.undelivered():
            await self._try(session, partial(self._approvals.delivery.send, session))
        for session in await self._considering.due():
            self._consider(session)
        for session in list(self._heads.unanswered):
            await self._try(session, partial(self._heads.answer, session))
        for session in self._openings.due():
            await self._try(session, partial(self._openings.open, session))
        for session, epoch in self._visits.unreported():
            await self._try(session, partial(self._visits.report, session, epoch))

    async def _try(self, session: str, act: Act) -> None:
        undone = self._trouble(session, "not done yet")
        try:
            await act()
        except GputError as error:
            undone.met(error)
        except Exception as error:
            undone.fault(error)
        else:
            undone.over()

    def _trouble(self, session: str, event: str) -> Trouble:
        return self._undone.setdefault((session, event), Trouble(_log, event, session=session))
