"""Keeping receipts: each is verified against this holder's own memory, stored with its checks, and fetched again when it was missed.

Which leaf of the log a receipt is nobody signs: whoever brings it says so. That stands until something else is said; then the log decides.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import suppress
from functools import partial

from sqlalchemy import Connection

from data_holder.answers import leaf_index, listed, malformed
from data_holder.approvals import Approvals
from data_holder.introductions import Introductions
from data_holder.ledger import Ledger
from data_holder.links import OrchestratorLink
from data_holder.log_reader import LogReader
from data_holder.protocol.state import VISIT, RememberedHead
from data_holder.protocol.visit import HolderFact
from data_holder.receipts import check_receipt, claimed_epoch, claimed_visit, signer_named
from data_holder.requests import verify_manifest
from data_holder.tables import rows
from data_holder.tables.schema import RECEIPTS
from data_holder.visit_facts import VisitFacts
from shared.attestation.one_time_keys import decoded
from shared.canonical.zeros import zeros_digest
from shared.errors import BadRequest, NotFound, VerificationFailed
from shared.service.logging import get_logger
from shared.service.statements import find_row
from shared.service.store import Store
from shared.wire.visit import VisitReport

PAGE, MALFORMED = 200, "receipts-malformed"
MAX_PAGES = 10_000
"""Of one holder's receipts, a session's: twice what as many rounds make of them as a manifest may have."""
_log = get_logger("data_holder.receipts")


class ReceiptBook:
    """Receives receipts; the same one again does nothing, another one under a known index is refused."""

    def __init__(
        self, *, ledger: Ledger, approvals: Approvals, store: Store, facts: VisitFacts, link: OrchestratorLink,
        introductions: Introductions,
    ) -> None:  # fmt: skip
        self._ledger, self._approvals, self._store, self._facts, self._link = ledger, approvals, store, facts, link
        self._introductions = introductions

    async def receive(self, session: str, cose: bytes, index: int) -> None:
        """Verify and keep one receipt.

        Raises:
            VerificationFailed: signed by nobody this holder opened a channel with, or said to be a leaf that is another one in the log.
            NotFound: the session is unknown here.
        """
        state = self._ledger.state(session)
        there, same = await self._kept(session, index, cose)
        if same is not None and same["index"] == index:
            return
        if (there is not None or same is not None) and not await self._is_leaf(session, cose, index, there):
            return
        if same is not None:
            await self._facts.moved(session, same, index)
            return
        request = verify_manifest(state.manifest, self._approvals.name, self._approvals.keys)
        visit = await self._own_visit(session, claimed_epoch(cose))
        state = await self._introductions.learn(session, signer_named(cose))
        # As many zeros are hashed as the buffer has bytes, which takes seconds for a large one: once, and not while everything else waits.
        await asyncio.to_thread(zeros_digest, request.manifest.buffer_bytes)
        checked = check_receipt(cose, index, state, holder=self._approvals.name, request=request, visit=visit)
        await self._facts.receipt(session, checked)
        if not checked.verified:
            failed = [check.check for check in checked.checks if not check.ok]
            _log.error("receipt does not verify", session=session, index=index, failed=failed)

    async def fetch_missed(self, session: str) -> None:
        """Ask for this holder's receipts that never came.

        Raises:
            Unavailable: the connection was lost; they can be fetched later. VerificationFailed: `receipts-malformed`. Else as `receive`.
        """
        if not self._ledger.knows(session) or not self._ledger.state(session).channels:
            return
        own = self._approvals.name
        # Of a long session each holder's share only: at its end all of them ask at once.
        async for item in listed(self._link, f"/v1/sessions/{session}/receipts", MALFORMED, MAX_PAGES, holder=own):
            if item.get("holder") == own:
                await self.receive(session, *_as_listed(item))

    async def prove_inclusion(self, session: str) -> None:
        """Hold the log's final head to the remembered one, and show that every receipt of this holder lies in that log.

        Raises:
            VerificationFailed: head or consistency. A receipt whose own proof fails is marked, not raised. Unavailable: no answer.
        """
        state = self._ledger.state(session)
        if not state.channels:
            return
        log = LogReader(self._link, state)
        try:
            head = await log.head(self._introductions.learn)
        except NotFound:
            return  # the session ended before its first visit: there is no log to prove anything in
        # Remembered: a database put back to before the end would otherwise be older than any offer showed.
        await self._facts.head(session, RememberedHead(head.size, head.root))
        paths = await log.paths(head, self._approvals.name)
        async for page in self._pages(session):
            # What was made after the newest signed head: nothing is proven yet, and nothing disproven.
            checks = [
                (row, log.inclusion(row["cose"], row["index"], head, paths.get(row["index"])))
                for row in page
                if row["index"] < head.size
            ]
            await self._facts.checked(session, checks)

    async def _pages(self, session: str) -> AsyncIterator[list[rows.Row]]:
        """The session's receipts, so many at once as one commit may change."""
        after: tuple[str, int] | None = None
        while page := await self._store.read(partial(rows.receipts, session=session, after=after, limit=PAGE)):
            yield page
            after = session, page[-1]["index"]

    async def _kept(self, session: str, index: int, cose: bytes) -> tuple[rows.Row | None, rows.Row | None]:
        """What is kept as that leaf, and this very receipt as whichever leaf."""
        visit = claimed_visit(cose)

        def read(connection: Connection) -> tuple[rows.Row | None, rows.Row | None]:
            same = (row for row in rows.receipts_of(connection, session, visit) if bytes(row["cose"]) == cose)
            return find_row(connection, RECEIPTS, {"session": session, "index": index}), next(same, None)

        return await self._store.read(read)

    async def _is_leaf(self, session: str, cose: bytes, index: int, there: rows.Row | None) -> bool:
        """Whether the log has this receipt as that leaf, although another is kept as it, or it as another. False where the newest signed
        head does not reach so far, or where the receipt is kept anyway: what is right comes once more at the session's end.

        Raises:
            VerificationFailed: `receipt-changed`: the leaf is not this one.
        """
        log = LogReader(self._link, self._ledger.state(session))
        try:
            head = await log.head(self._introductions.learn)
            path = await log.path(index, head.size) if index < head.size else None
            check = None if path is None else log.inclusion(cose, index, head, path)
        except NotFound:
            check = None
        if check is not None and check.ok:
            return True
        if check is not None and there is not None:
            raise VerificationFailed(
                f"a receipt was said to be leaf {index} of session {session}, which it is not in the log, and another is kept as it",
                code="receipt-changed",
            )  # fmt: skip
        _log.warning("two leaves are said of a receipt, or two receipts of a leaf", session=session, index=index)
        return False

    async def _own_visit(self, session: str, epoch: int) -> rows.Row | None:
        """What this holder wrote under an epoch, as it reported: the journal has MACs and the row has none. Nothing, if it never did."""
        row = await self._store.read(lambda connection: rows.attempt(connection, session, epoch))
        if row is None or (said := await self._reported(session, epoch)) is None:
            return None
        report = VisitReport.model_validate_json(said)
        return {
            **row, "visit": report.visit, "count": report.records, "length": report.length, "commitment": report.commitment,
        }  # fmt: skip

    async def _reported(self, session: str, epoch: int) -> bytes | None:
        """The report's exact bytes. Of an attempt that is over, seldom asked for, they are only in the journal."""
        attempt = self._ledger.state(session).attempts.get(epoch)
        if attempt is not None:
            return attempt.report or None
        for body in await self._ledger.facts(session, VISIT):
            if (body["epoch"], body["fact"]) == (epoch, HolderFact.PROVISIONED.value):
                return decoded(body["report"])
        return None


def _as_listed(item: dict[str, object]) -> tuple[bytes, int]:
    """A listed receipt's bytes and its leaf's index. Raises: VerificationFailed."""
    cose = item.get("cose")
    with suppress(BadRequest, ValueError):
        if isinstance(cose, str):
            return decoded(cose), leaf_index(item.get("index"))
    raise malformed("a list of receipts that is malformed", MALFORMED)
