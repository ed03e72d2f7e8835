"""Entering a holder's decision: verify, judge, write down, and say whether the session is agreed now. Knows no HTTP."""

from __future__ import annotations

from base64 import b64encode
from typing import Any

from sqlalchemy import Connection, func, insert, select

from orchestrator.sessions.approvals import agreed, judge
from orchestrator.sessions.book import Book, Row
from orchestrator.sessions.facts import new_fact
from orchestrator.sessions.state import SessionState
from orchestrator.tables import APPROVALS
from shared.attestation.approvals import VerifiedApproval, verify_approval
from shared.attestation.one_time_keys import decoded
from shared.canonical import json_value
from shared.claims.free_text import unseen
from shared.errors import BadRequest, Conflict, NotPermitted
from shared.names import Role, SessionPhase
from shared.protocol.session import SessionFact
from shared.wire.visit import Approval, Signed


async def decide(book: Book, signed: Signed, *, caller: str, public_key: bytes) -> tuple[dict[str, Any], bool]:
    """Enter a decision; answers its view and whether it is new. One that says what stands already is answered with that.

    Raises:
        BadRequest, VerificationFailed: the document or its signature. NotPermitted: not the caller's. Conflict: as `judge`, by what is
            durable. Unavailable: the database refused.
    """
    state = book.state
    verified = verify_approval(signed, public_key, session=state.id, manifest=state.manifest)
    if verified.approval.holder != caller:
        raise NotPermitted("A holder decides for itself only", code="not-your-decision")
    async with book.turn:  # a holder that is unsure whether its word arrived sends it again, maybe at the same moment
        known = _known(state, verified)
        if known is not None:
            await book.commit()  # whoever said it may not have waited until it was durable
            return view(known, state), False
        if found := unseen(
            verified.approval.reason, but="\n\t"
        ):  # not where it is verified: one that was taken before stands
            raise BadRequest(f"The reason holds what cannot be seen: {found}", code="unseen-text")
        try:
            fact = judge(state, verified.approval)
        except Conflict:
            await book.commit()  # nobody is refused for what no journal has yet
            raise
        row = _row(state.id, verified.approval, verified.signed)
        book.stage(new_fact(fact, Role.HOLDER, **verified.body()), _insert(row))
        if state.phase is SessionPhase.AWAITING_APPROVAL and agreed(state):
            book.stage(new_fact(SessionFact.AGREED))
        await book.commit()
    return view(row, state), True


def _known(state: SessionState, verified: VerifiedApproval) -> dict[str, Any] | None:
    """This very document, whenever it was entered, or the holder's standing one if it says the same at another time. By the journal: rows
    are only shown."""
    words = state.words.get(verified.approval.holder)
    if not words:
        return None
    document = verified.signed.document
    if document not in words:
        standing = next(reversed(words))
        if _said(standing) != _said(document):
            return None
        document = standing
    approval = Approval.model_validate(json_value(decoded(document)))
    return _row(state.id, approval, Signed(document=document, signature=words[document]))


def _said(document: str) -> dict[str, Any]:
    return {name: value for name, value in json_value(decoded(document)).items() if name != "at"}


def _row(session: str, approval: Approval, signed: Signed) -> dict[str, Any]:
    return {
        "session": session, "holder": approval.holder, "decision": approval.decision,
        "document": decoded(signed.document), "signature": decoded(signed.signature), "at": float(approval.at),
    }  # fmt: skip


def _insert(row: dict[str, Any]) -> Row:
    def write(connection: Connection) -> None:
        highest = connection.execute(
            select(func.max(APPROVALS.c.number)).where(APPROVALS.c.session == row["session"])
        ).scalar()
        connection.execute(insert(APPROVALS).values(number=(highest or 0) + 1, **row))

    return write


def view(row: dict[str, Any], state: SessionState) -> dict[str, Any]:
    """What the API says of a decision. `public_key` (hex) verifies it; null for a holder that never approved."""
    document = json_value(bytes(row["document"]))
    dataset = state.datasets.get(row["holder"])
    return {
        "holder": row["holder"], "decision": row["decision"], "reason": document["reason"], "records": document["records"],
        "record_bytes": document["record_bytes"], "dataset_root": document["dataset_root"], "at": row["at"],
        "profile": document.get("profile"),
        "document": b64encode(row["document"]).decode(), "signature": b64encode(row["signature"]).decode(),
        "public_key": None if dataset is None else dataset.public_key,
    }  # fmt: skip
