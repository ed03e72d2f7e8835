"""Committing what happened to a visit: journal facts and the operator's rows, in one transaction each. Decides nothing."""

from __future__ import annotations

import base64
import json
from collections.abc import Callable, Sequence
from typing import Any

from sqlalchemy import delete

from data_holder.ledger import Ledger
from data_holder.links import document as document_bytes
from data_holder.offers import Admitted
from data_holder.protocol.state import HEAD, RECEIPT, VISIT, RememberedHead, SessionState
from data_holder.protocol.visit import HOLDER_VISIT, HolderFact, HolderPhase
from data_holder.receipts import Check, CheckedReceipt, kept_checks
from data_holder.tables import rows
from data_holder.tables.schema import RECEIPTS, VISITS
from shared.errors import GputError
from shared.names import Role
from shared.protocol.merkle import leaf_hash
from shared.service.clock import Clock
from shared.service.logging import get_logger
from shared.service.statements import insert_row, put_row, update_row
from shared.wire.visit import OfferDocument, VisitReport

_log = get_logger("data_holder.visit_facts")
_F, _P = HolderFact, HolderPhase
_ACTORS = {fact: move.actor for (_, fact), move in HOLDER_VISIT.moves.items()}


class VisitFacts:
    """Writes facts through the ledger; after each call the state in memory and the rows agree."""

    def __init__(
        self, ledger: Ledger, clock: Clock, watch: Callable[[VisitReport], None] = lambda report: None
    ) -> None:
        """`watch` is told of each report once it is durable."""
        self._ledger, self._clock, self._watch = ledger, clock, watch

    async def admitted(self, session: str, admitted: Admitted) -> None:
        """OFFERED, VERIFIED and the log head, before the visit key is opened."""
        document = admitted.document
        facts = [_offered(document), _fact(document.grant.epoch, _F.VERIFIED), _head(admitted.head)]
        await self._put(session, document, facts, {"phase": _P.VERIFIED.value})

    async def head(self, session: str, head: RememberedHead) -> None:
        """A verified head that came without an offer: the log's last one."""
        await self._ledger.record(session, [_head(head)], lambda connection: None)

    async def refused(self, session: str, document: OfferDocument, error: GputError) -> None:
        """An authentic offer that was turned away. An old epoch cannot be recorded again and is only logged."""
        if document.grant.epoch <= self._ledger.state(session).highest_epoch:
            return
        facts = [_offered(document), _fact(document.grant.epoch, _F.REFUSED)]
        values = {"phase": _P.REFUSED.value, "refusal_code": error.code, "refusal_detail": error.detail}
        await self._put(session, document, facts, values)

    async def provisioned(self, session: str, epoch: int, report: VisitReport) -> None:
        """ATTACHED and PROVISIONED with the report's exact bytes, before it is sent."""
        body = document_bytes(report)
        kept = base64.b64encode(body).decode()
        facts = [_fact(epoch, _F.ATTACHED), _fact(epoch, _F.PROVISIONED, report=kept)]
        values = {
            "phase": _P.PROVISIONED.value, "commitment": report.commitment, "bytes_sent": report.bytes_sent,
            "timers": report.timers.model_dump_json(),
        }  # fmt: skip
        await self._change(session, epoch, facts, values)
        try:
            self._watch(report)
        except Exception as error:
            # What is durable is sent all the same: a visit must not fail because it could not be counted.
            _log.error("a watcher broke", session=session, visit=report.visit, exc_info=error)

    async def advance(self, session: str, epoch: int, facts: Sequence[HolderFact]) -> None:
        """Plain facts in order, as far as the attempt is still open."""
        if epoch in self._ledger.state(session).attempts:
            await self._change(session, epoch, [_fact(epoch, fact) for fact in facts], {})

    async def gave_up(self, session: str, epoch: int, error: GputError) -> None:
        """The holder stopped an attempt on its own: REFUSED, or ABANDONED where data may already be published."""
        attempt = self._ledger.state(session).attempts.get(epoch)
        if attempt is None:
            return
        before_data = attempt.phase in (_P.OFFERED, _P.VERIFIED, _P.ATTACHED)
        fact = _F.REFUSED if before_data else _F.ABANDONED
        values = {"refusal_code": error.code, "refusal_detail": error.detail}
        await self._change(session, epoch, [_fact(epoch, fact)], values)

    async def settle(self, session: str, fact: HolderFact) -> None:
        """End open attempts: SUPERSEDED ends all, ABANDONED only those whose data was never published."""
        state = self._ledger.state(session)
        published = (_P.PROVISIONED, _P.REPORTED)
        for epoch, attempt in list(state.attempts.items()):
            if fact is _F.SUPERSEDED or attempt.phase not in published:
                await self._change(session, epoch, [_fact(epoch, fact)], {})

    async def receipt(self, session: str, checked: CheckedReceipt) -> None:
        """A receipt's row; a verified one also settles its attempt."""
        receipt = checked.receipt
        key = {"session": session, "index": checked.index}
        facts: list[tuple[str, dict[str, Any]]] = []
        values: dict[str, Any] = {}
        state = self._ledger.state(session)
        if checked.verified:
            attempt = state.attempts.get(receipt.epoch)
            if attempt is not None and attempt.phase in (_P.PROVISIONED, _P.REPORTED):
                facts.append(_fact(receipt.epoch, _F.RECEIVED))
                values["phase"] = _P.DONE.value
            leaf = leaf_hash(checked.cose).hex()
            facts.append((RECEIPT, {"epoch": receipt.epoch, "outcome": receipt.outcome, "leaf": leaf}))

        def project(connection: Any) -> None:
            put_row(connection, RECEIPTS, key, checked.row())
            if values:
                update_row(connection, VISITS, {"session": session, "epoch": receipt.epoch}, values)

        await self._ledger.record(session, facts, project)

    async def moved(self, session: str, row: rows.Row, index: int) -> None:
        """A kept receipt that turned out to be another leaf than was said; whatever was kept as that one is not it."""

        def project(connection: Any) -> None:
            for one in (row["index"], index):
                connection.execute(delete(RECEIPTS).where(RECEIPTS.c.session == session, RECEIPTS.c.index == one))
            insert_row(connection, RECEIPTS, {**row, "index": index})

        await self._ledger.record(session, [], project)

    async def checked(self, session: str, found: Sequence[tuple[rows.Row, Check]]) -> None:
        """One more check of each of these stored receipts, in one commit; the latest outcome under its name stays."""
        changes = [({"session": session, "index": row["index"]}, _with(row, check)) for row, check in found]

        def project(connection: Any) -> None:
            for key, values in changes:
                update_row(connection, RECEIPTS, key, values)

        await self._ledger.record(session, [], project)

    async def _put(self, session: str, document: OfferDocument, facts: Any, values: dict[str, Any]) -> None:
        row = {**_row(document), "at": self._clock(), **values}
        key = {"session": session, "epoch": document.grant.epoch}
        await self._ledger.record(session, facts, lambda connection: put_row(connection, VISITS, key, row))

    async def _change(self, session: str, epoch: int, facts: Any, values: dict[str, Any]) -> None:
        values = {"phase": _phase_after(self._ledger.state(session), epoch, facts), **values}
        key = {"session": session, "epoch": epoch}
        await self._ledger.record(session, facts, lambda connection: update_row(connection, VISITS, key, values))


def _with(row: rows.Row, check: Check) -> dict[str, Any]:
    checks = [*(old for old in kept_checks(row["checks"]) if old.check != check.check), check]
    return {"checks": json.dumps([one.as_json() for one in checks]), "verified": all(one.ok for one in checks)}


def _fact(epoch: int, fact: HolderFact, **more: Any) -> tuple[str, dict[str, Any]]:
    return VISIT, {"epoch": epoch, "fact": fact.value, "actor": _ACTORS[fact].value, **more}


def _head(head: RememberedHead) -> tuple[str, dict[str, Any]]:
    return HEAD, {"size": head.size, "root": head.root.hex()}


def _offered(document: OfferDocument) -> tuple[str, dict[str, Any]]:
    return _fact(document.grant.epoch, _F.OFFERED, visit=document.grant.visit)


def _phase_after(state: SessionState, epoch: int, facts: Sequence[tuple[str, dict[str, Any]]]) -> str:
    phase = state.attempts[epoch].phase
    for _, body in facts:
        phase = HOLDER_VISIT.after(phase, HolderFact(body["fact"]), Role(body["actor"]))
    return phase.value


def _row(document: OfferDocument) -> dict[str, Any]:
    grant, cursor = document.grant, document.grant.cursor
    return {
        "visit": grant.visit, "round": document.round, "index": document.index, "attempt": document.attempt,
        "start": cursor.start, "count": cursor.count, "length": grant.length, "commitment": None, "bytes_sent": 0,
        "timers": None, "refusal_code": None, "refusal_detail": None,
    }  # fmt: skip
