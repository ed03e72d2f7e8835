"""Collecting the log heads that a session's holders remember: a start's first act, before the GPU is touched (design 4.3).

Holders are asked through their inboxes and answer when they come; nobody is called. Knows no HTTP route and no GPU.
"""

from __future__ import annotations

from typing import Any

from orchestrator.holders.inbox import Inboxes
from orchestrator.ledger.heads import awaited, contradiction
from orchestrator.ledger.log import event_leaf
from orchestrator.runner.wishes import Wishes
from orchestrator.sessions.approvals import check_quorum, enough
from orchestrator.sessions.book import Book
from orchestrator.sessions.facts import new_fact
from orchestrator.sessions.state import SessionState
from shared.attestation.approvals import roster_key
from shared.attestation.head_statements import VerifiedHeadStatement, verify_head_statement
from shared.errors import VerificationFailed
from shared.protocol.session import SessionFact
from shared.service.clock import Entropy
from shared.wire.visit import Signed

ASK_AGAIN_S = 10.0


async def require_quorum(book: Book) -> None:
    """Enough holders still take part; too few by what is durable: a veto on its way to the journal may be lost, and the end would not be.

    Raises:
        VerificationFailed: `quorum-lost`. Unavailable: the database refused what was to say so.
    """
    if not enough(book.state):
        await book.commit()
        check_quorum(book.state)


class Heads:
    """What the holders said to this start. `confirmed` once the quorum's heads lie in the log; later words are judged all the same.

    A new session is asked about like any other: only its holders can tell it from one whose database was put back to before it began.
    """

    def __init__(self, entropy: Entropy) -> None:
        self.challenge = entropy(32).hex()
        self.confirmed = False
        self._stated: dict[str, VerifiedHeadStatement] = {}
        self._contradicted: tuple[VerifiedHeadStatement, VerificationFailed] | None = None
        self._asked: set[str] = set()

    def wanted(self, state: SessionState) -> dict[str, Any]:
        """The inbox item that asks for a head, less its number."""
        return {"kind": "head_wanted", "session": state.id, "challenge": self.challenge}

    def wants(self, state: SessionState, holder: str) -> bool:
        """Whether the holder was asked and has not answered: its head is of interest also when the quorum was reached without it."""
        return holder in state.active and holder in self._asked and holder not in self._stated

    def hear(self, state: SessionState, holder: str, signed: Signed, public_key: bytes) -> bool:
        """Judge a holder's statement; whether the log can still be trusted. The same statement again has no effect.

        Raises:
            BadRequest, NotPermitted, VerificationFailed: it is not this holder's answer to this start; nothing changed.
        """
        key = roster_key(state.manifest, holder, public_key)
        stated = verify_head_statement(signed, key=key, session=state.id, holder=holder, challenge=self.challenge)
        self._stated[holder] = stated
        error = contradiction(state.tree, stated)
        if error is not None and self._contradicted is None:
            self._contradicted = stated, error
        return self._contradicted is None

    async def check(self, book: Book) -> None:
        """Nobody has contradicted the log so far; else the statement that does is written down.

        Raises:
            VerificationFailed: `log-rolled-back`, `log-split-view`: the session must be refused.
        """
        if self._contradicted is not None:
            stated, error = self._contradicted
            fact = new_fact(
                SessionFact.HEAD_CONTRADICTED, code=error.code, detail=error.detail, statement=_evidence(stated)
            )
            await book.record(fact)
            raise error

    async def collect(self, book: Book, inboxes: Inboxes, wishes: Wishes) -> bool:
        """Ask, and wait until the quorum has answered; False when a wish came first.

        Raises:
            VerificationFailed: as `check`, or `quorum-lost`.
        """
        while not (self.confirmed or wishes.any):
            seen = book.changes.version
            book.require_open()
            await self.check(book)
            await require_quorum(book)
            missing = awaited(book.state.active, book.state.quorum, self._stated)
            wishes.waiting_for = [f"head of holder {holder}" for holder in missing]
            self.ask(book.state, inboxes)
            if missing:
                if await book.changes.wait(seen, ASK_AGAIN_S) == seen:
                    self._asked -= {
                        *missing
                    }  # a question or an answer may have gone astray; the same answer again does no harm
            else:
                await self._confirm(book)
        await self.check(book)
        return self.confirmed

    def ask(self, state: SessionState, inboxes: Inboxes) -> None:
        """Ask every active holder that was not asked yet; who joins later may have been here before."""
        for holder in set(state.active) - self._asked:
            self._asked.add(holder)
            # An earlier runner may have asked, over a challenge that is nobody's now.
            inboxes.withdraw(holder, state.id, ("head_wanted",))
            inboxes.post(holder, **self.wanted(state))

    async def _confirm(self, book: Book) -> None:
        """Write down who vouched for the log. After a restart this is a leaf of the log itself, so that no restart can be hidden."""
        state = book.state
        statements = [_evidence(stated) for stated in self._stated.values()]
        if state.life:
            kind, details = SessionFact.HEADS_CONFIRMED, {"challenge": self.challenge, "statements": statements}
            leaf = event_leaf(state.tree, state.id, kind.value, details)
            await book.record(new_fact(kind, statements=statements, leaf=leaf.fact), leaf.row)
        else:
            await book.record(new_fact(SessionFact.HEADS_CONFIRMED, statements=statements))
        self.confirmed = True


def _evidence(stated: VerifiedHeadStatement) -> dict[str, str]:
    return {"holder": stated.holder, "document": stated.signed.document, "signature": stated.signed.signature}
