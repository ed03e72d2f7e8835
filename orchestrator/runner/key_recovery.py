"""A session whose key is sealed to another CVM or release: its holders are asked for their shares, and it goes on. Knows no GPU, no route.

Holders come when they come; nobody is called. Shares are in memory only: a restart asks again. What the database says of the key (check
value, digests) is the platform's to change: it can make shares fail, never pass, because the journal must verify under the key in the end.
"""

from __future__ import annotations

import base64
import hmac
from dataclasses import dataclass
from typing import Any

from sqlalchemy import Connection

from orchestrator.ids import new_offer_id
from orchestrator.ledger.log import event_leaf
from orchestrator.runner.house import House
from orchestrator.sessions.book import Book
from orchestrator.sessions.facts import VOCABULARY, kind_of, new_fact
from orchestrator.sessions.keyring import Dealt, SessionKeys, read_dealt, sharing_plan
from orchestrator.sessions.loading import folded
from orchestrator.sessions.rows import legible
from orchestrator.sessions.submission import read_manifest
from shared.attestation.approvals import roster_key
from shared.attestation.one_time_keys import decoded
from shared.attestation.owners import verify_owner
from shared.attestation.recovery import recovery_event, recovery_report_data, recovery_runtime, take_share
from shared.attestation.session_events import RECOVERY_EVENT
from shared.canonical import sha256
from shared.claims.manifest import Manifest
from shared.crypto.hpke import OneTimeKey
from shared.crypto.schedule import session_key_check
from shared.crypto.secret import Secret
from shared.crypto.sharing import combine, share_digest
from shared.errors import Conflict, GputError, Unavailable, VerificationFailed
from shared.protocol.session import SessionFact
from shared.service.journal import Fact, Head, Journal
from shared.service.logging import get_logger
from shared.service.printable import printable
from shared.wire.recovery import GivenShare, ShareOffer, ShareRefusal, ShareRequest

ASK_AGAIN_S = 10.0
_log = get_logger("recovery")


@dataclass(frozen=True)
class _Offered:
    """What a holder was shown, and the one-time key that its answer is sealed to."""

    offer: str
    runtime_data: bytes
    key: OneTimeKey


@dataclass(frozen=True)
class _Given:
    """A share that is the one dealt, as far as the database tells, and to whom its holder says that it gave it."""

    share: Secret
    measurement: str
    runtime: str


class KeyRecovery:
    """Of one session. `trouble`: why shares that were enough did not do."""

    def __init__(self, house: House, row: dict[str, Any], manifest: Manifest, dealt: Dealt) -> None:
        self.id: str = row["id"]
        self.manifest, self.changes = manifest, house.catalogue.changes(self.id)
        self._house, self._row, self._dealt, self._plan = house, row, dealt, sharing_plan(self.id, manifest)
        self._token = house.entropy(16).hex()
        self._offered: dict[str, _Offered] = {}
        self._given: dict[str, _Given] = {}
        self._refused: dict[str, str] = {}
        self._asked: set[str] = set()
        self._trouble: str | None = None

    @classmethod
    async def of(cls, house: House, session: str) -> KeyRecovery:
        """Of a session whose journal cannot be read yet: its manifest stands by its owner's signature.

        Raises:
            VerificationFailed, ManifestRefused: it does not, or what is stored has another form than it was written in. Conflict: its key
            row is gone. NotFound, Unavailable.
        """
        row = await house.catalogue.row(session)
        with legible(session):
            document = bytes(row["manifest"])
            verify_owner(document, bytes.fromhex(row["owner_key"]), bytes(row["signature"]))
            dealt = await house.store.read(lambda connection: read_dealt(connection, session))
        if dealt is None:
            raise Conflict(f"the key row of {session} has been removed", code="session-key-removed")
        return cls(house, row, read_manifest(document), dealt)

    def wants(self, holder: str) -> bool:
        """Whether the holder's share is missing; one that has refused is asked again when it comes anew."""
        return holder in self._plan.holders and holder not in self._given

    def wanted(self) -> dict[str, Any]:
        """The inbox item that asks for a share, less its number."""
        return {"kind": "share_wanted", "session": self.id}

    def waits(self) -> list[str]:
        """For whom the session waits, and why, for its page."""
        if self._trouble is not None:
            return [self._trouble]
        missing = [holder for holder in self._plan.holders if self.wants(holder) and holder not in self._refused]
        left = self._plan.threshold - len(self._given)
        count = "" if left >= len(missing) else f"{left} of "
        asked = [f"its holders' shares: {count}{', '.join(missing)}"] if missing else []
        return asked + [f"{holder} (share refused: {why})" for holder, why in self._refused.items()]

    # ------------------------------------------------------------ words from holders

    async def offer(self, holder: str, public_key: bytes, request: ShareRequest) -> ShareOffer:
        """Our proof over the holder's nonce, and the key that its share is to be sealed to; it replaces an earlier one.

        Raises:
            NotPermitted, VerificationFailed: not the roster's holder. Conflict: it has given it. Unavailable: the quoting enclave.
        """
        roster_key(self.manifest, holder, public_key)
        if not self.wants(holder):
            raise Conflict(f"{holder} has given its share", code="share-not-wanted", remedy="Nothing: it is enough.")
        house, key, manifest = self._house, OneTimeKey.generate(), self.manifest.digest().hex()
        runtime = recovery_runtime(
            session=self.id, holder=holder, manifest=manifest, peer_nonce=request.nonce,
            enrolled_key=house.identity.public, key=key.public,
        )  # fmt: skip
        await house.guest.record(RECOVERY_EVENT, recovery_event(self.id, manifest))
        evidence = await house.guest.quote(recovery_report_data(runtime), about=self.id)
        offered = self._offered[holder] = _Offered(new_offer_id(house.entropy), runtime, key)
        return ShareOffer(offer=offered.offer, runtime_data=base64.b64encode(runtime).decode(), evidence=evidence)

    def take(self, holder: str, public_key: bytes, offer: str, given: GivenShare) -> None:
        """A holder's share.

        Raises:
            NotPermitted, VerificationFailed: not the roster's holder. Conflict: `offer-unknown`: not our newest offer to it, or answered.
            VerificationFailed: `hpke-open`, `share-malformed`, `share-wrong`: what it gave is not what it was dealt.
        """
        roster_key(self.manifest, holder, public_key)
        offered = self._offered.get(holder)
        if offered is None or offered.offer != offer:
            raise Conflict(f"There is no open offer {offer}", code="offer-unknown", remedy="Wait for share_wanted.")
        del self._offered[holder]
        try:
            share = take_share(decoded(given.sealed), key=offered.key, runtime_data=offered.runtime_data)
            self._check_dealt(holder, share)
        except VerificationFailed as error:
            self._refused[holder] = f"{error.code}: {error.detail}"
            _log.error("a holder's share is wrong", session=self.id, holder=holder, code=error.code)
            self.changes.notify()
            raise
        self._refused.pop(holder, None)
        self._given[holder] = _Given(share, given.measurement, sha256(offered.runtime_data).hex())
        self.changes.notify()

    def _check_dealt(self, holder: str, share: Secret) -> None:
        dealt = str(self._dealt.digests.get(holder, "")).encode(errors="replace")  # whatever somebody has put there
        if not hmac.compare_digest(dealt, share_digest(self._plan, holder, share).hex().encode()):
            raise VerificationFailed(f"{holder} gave a share that is not the one it was dealt", code="share-wrong")

    def refuse(self, holder: str, public_key: bytes, refusal: ShareRefusal) -> None:
        """A holder's word that it gives none. Raises: NotPermitted, VerificationFailed: not the roster's holder."""
        roster_key(self.manifest, holder, public_key)
        if self.wants(holder):
            self._refused[holder] = f"{refusal.code}: {printable(refusal.detail)}"
            _log.warning("a holder refuses its share", session=self.id, holder=holder, code=refusal.code)
            self.changes.notify()

    # ------------------------------------------------------------ the key

    async def drive(self) -> bool:
        """Ask until there are enough shares, and put the key where this CVM finds it; whether that was done.

        False: enough shares came and gave no key that the journal verifies under; `waits` says so, and nothing more can be done here.
        """
        while True:
            seen = self.changes.version
            if len(self._given) >= self._plan.threshold:
                try:
                    await self._recover()
                    return True
                except Unavailable as error:
                    _log.warning("the recovered key cannot be kept yet", session=self.id, code=error.code)
                except GputError as error:
                    self._trouble = f"nobody: its holders' shares do not help ({error.code}: {error.detail})"
                    _log.error("shares do not help", session=self.id, code=error.code, detail=error.detail)
                    return False
                except Exception as error:
                    self._trouble = f"nobody: internal fault ({type(error).__name__}); see the log"
                    _log.exception("a bug ended the recovery", session=self.id, exc_info=error)
                    return False
            self._ask()
            if await self.changes.wait(seen, ASK_AGAIN_S) == seen:
                self._asked.clear()  # a question or an answer may have gone astray

    def _ask(self) -> None:
        """Every holder whose share is missing and that was not asked lately; who has refused is asked when it comes anew."""
        for holder in self._plan.holders:
            if self.wants(holder) and holder not in self._refused and holder not in self._asked:
                self._asked.add(holder)
                self._house.inboxes.withdraw(holder, self.id, ("share_wanted",))
                self._house.inboxes.post(holder, **self.wanted())

    async def _recover(self) -> None:
        """Combine, verify the whole journal under it, then write down who gave it together with the key itself.

        Raises:
            VerificationFailed: the shares give another key, or the journal was tampered with. Unavailable.
        """
        key = combine({holder: given.share for holder, given in self._given.items()}, self._plan)
        if not hmac.compare_digest(session_key_check(key.reveal(), self.id), self._dealt.key_check):
            raise VerificationFailed("the shares give another key than the session's", code="shares-do-not-fit")
        house, journal_key = self._house, SessionKeys.of(key, self.id).journal
        journal = Journal(lambda _: journal_key.reveal(), VOCABULARY)

        def read(connection: Connection) -> tuple[list[Fact], Head]:
            return journal.load(connection, self.id), journal.head(connection, self.id)

        facts, head = await house.store.read(read)
        if not any(self._is_ours(fact) for fact in facts):  # the answer to an earlier commit may have been lost
            state, durable = await folded(self._row, facts)
            book = Book(
                state, durable, head, store=house.store, journal=journal, clock=house.clock, changes=self.changes,
                doubted=_tried_again,
            )  # fmt: skip
            await self._write_down(book, key)

    def _is_ours(self, fact: Fact) -> bool:
        return fact.kind == kind_of(SessionFact.KEY_RECOVERED) and fact.body["recovery"] == self._token

    async def _write_down(self, book: Book, key: Secret) -> None:
        givers = [
            {"holder": holder, "measurement": given.measurement, "runtime": given.runtime}
            for holder, given in self._given.items()
        ]
        kind, details = SessionFact.KEY_RECOVERED, {"recovery": self._token, "shares": givers}
        leaf = event_leaf(book.state.tree, self.id, kind.value, details)
        fact = new_fact(kind, recovery=self._token, shares=givers, leaf=leaf.fact)
        await book.record(fact, leaf.row, self._house.keyring.resealing(self.id, key))
        _log.warning("a session's key was recovered", session=self.id, holders=list(self._given))


def _tried_again() -> None:
    """`drive` reads the journal once more: it finds there what a commit did that failed."""
