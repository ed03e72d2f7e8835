"""What an authentic offer must satisfy before the holder touches the visit key: one rule, one refusal. Pure: bytes and numbers in.

Each rule names the attack it stops. The signature over the offer is checked before (shared.attestation.channel.verify_offer); these rules
hold an *authentic* orchestrator to what this holder approved and remembers.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from data_holder.protocol.state import RememberedHead, SessionState
from shared.attestation.one_time_keys import decoded
from shared.claims.manifest import Manifest
from shared.crypto.tree_head import TreeHead, verify_tree_head
from shared.errors import Refused
from shared.names import holder_port
from shared.protocol.membership import proof_limit
from shared.protocol.merkle import verify_consistency
from shared.protocol.stops import holder_at, round_of
from shared.protocol.travel import TRAVEL
from shared.wire.visit import OfferDocument

CLOCK_SLACK_S = 300
"""How far this holder's clock and the orchestrator's may differ, seconds."""


@dataclass(frozen=True)
class Agreement:
    """What this holder agreed to and brings: the approved manifest with its digest, its own name, and the dataset it committed to."""

    manifest: Manifest
    digest: str
    holder: str
    record_bytes: int
    records: int
    dataset_root: str


def check_offer(
    document: OfferDocument,
    agreement: Agreement,
    state: SessionState,
    *,
    signing_key: bytes,
    proof: list[bytes],
    at: float,
) -> RememberedHead:
    """Hold an authentic offer to the approval and to this holder's memory; the log head to remember from now on.

    Args:
        signing_key: the attested orchestrator's session signing key (raw 32 bytes), which signs log heads.
        proof: consistency path from the remembered head's size to the offer's.
        at: now, seconds since 1970.

    Raises:
        Refused: with the rule's own code. VerificationFailed: the log head's signature or its proof.
    """
    _same_agreement(document, agreement)
    _cursor_as_planned(document, agreement.manifest, agreement.holder)
    _grant_within(document, agreement, at)
    _epoch_is_new(document, state)
    return check_log(document, state.session, state.head, signing_key, proof)


def _same_agreement(document: OfferDocument, agreement: Agreement) -> None:
    _equal("manifest-not-approved", "manifest digest", agreement.digest, document.manifest)
    # A grant of another party's visit would put this holder's records where that party's are expected.
    _equal("wrong-holder", "holder", agreement.holder, document.grant.holder)
    _equal("wrong-port", "port", holder_port(agreement.holder), document.grant.port)
    if document.round > agreement.manifest.rounds:
        raise Refused("the visit lies beyond the approved rounds", code="too-many-rounds",
                      expected=f"<= {agreement.manifest.rounds}", got=str(document.round))  # fmt: skip


def _grant_within(document: OfferDocument, agreement: Agreement, at: float) -> None:
    grant, manifest, travel = document.grant, agreement.manifest, TRAVEL[agreement.manifest.travel_mode]
    _equal("mode-not-approved", "travel mode", manifest.travel_mode, grant.mode)
    _equal("mode-not-approved", "rights of the visit key", travel.rights, grant.rights)
    planned = manifest.steps_for(agreement.holder) * manifest.training.batch_size
    _equal("records-not-planned", "records of the grant", planned, grant.records)
    _equal("record-size", "record bytes", agreement.record_bytes, grant.record_bytes)
    # Under another root the GPU would refuse what this holder sends, and its receipt would speak of somebody else's records.
    _equal("root-not-approved", "dataset root", agreement.dataset_root, grant.dataset_root)
    _equal("root-not-approved", "records of the dataset", agreement.records, grant.dataset_records)
    # More budget than records and their proof would let a visit key be used for more than one visit's data.
    budget = grant.length + proof_limit(grant.cursor, agreement.records)
    _equal("budget-not-planned", "byte budget", budget, grant.byte_budget)
    if grant.length > manifest.buffer_bytes:
        raise Refused("the visit exceeds the approved buffer", code="buffer-exceeded",
                      expected=f"<= {manifest.buffer_bytes}", got=str(grant.length))  # fmt: skip
    if grant.expires_at <= at:
        raise Refused("the grant has expired", code="grant-expired", expected=f"> {int(at)}", got=str(grant.expires_at))
    latest = at + manifest.lease_s + CLOCK_SLACK_S
    if grant.expires_at > latest:
        raise Refused("the grant outlives the approved lease", code="lease-too-long",
                      expected=f"<= {int(latest)}", got=str(grant.expires_at))  # fmt: skip
    _equal("one-time-key-mismatch", "recipient of the grant", document.one_time_key, grant.recipient)


def _cursor_as_planned(document: OfferDocument, manifest: Manifest, holder: str) -> None:
    """The itinerary follows from the manifest alone: every holder once a round, whole steps, in order. Nothing else is read."""
    cursor = document.grant.cursor
    _equal("index-not-planned", "round of the visit", round_of(manifest, document.index), document.round)
    # At another's stop, too, the round's records would take part in it, once for each.
    _equal("index-not-planned", "holder at this stop", holder_at(manifest, document.index), holder)
    _equal("order-not-planned", "record order", manifest.record_order, cursor.order)
    _equal("order-not-planned", "seed of the record order", manifest.training.seed, cursor.seed)
    start = manifest.records_behind(holder) + (document.round - 1) * cursor.count
    _equal("cursor-not-planned", "start of the cursor", start, cursor.start)


def _epoch_is_new(document: OfferDocument, state: SessionState) -> None:
    _equal("epoch-mismatch", "epoch of the IVs", document.grant.epoch, document.iv_epoch)
    # Law L4: under a repeated epoch the same key and counters would come again.
    if document.grant.epoch <= state.highest_epoch:
        raise Refused("the epoch was seen before", code="epoch-not-new",
                      expected=f"> {state.highest_epoch}", got=str(document.grant.epoch))  # fmt: skip


def check_log(
    document: OfferDocument, session: str, remembered: RememberedHead | None, signing_key: bytes, proof: list[bytes]
) -> RememberedHead:
    """The offer's log head, if it extends the remembered one: a rolled-back or forked database is noticed here (design 4.3).

    Raises:
        Refused: `log-rolled-back`. VerificationFailed: signature or consistency proof.
    """
    root = bytes.fromhex(document.log_root)
    head = TreeHead(session=session, size=document.log_size, root=root, time=document.log_time)
    verify_tree_head(head, signing_key, decoded(document.log_signature))
    if remembered is not None:
        if document.log_size < remembered.size:
            raise Refused("the session's log is shorter than the one this holder saw", code="log-rolled-back",
                          expected=f">= {remembered.size}", got=str(document.log_size))  # fmt: skip
        verify_consistency(remembered.size, remembered.root, document.log_size, root, proof)
    return RememberedHead(document.log_size, root)


def _equal(code: str, what: str, expected: Any, got: Any) -> None:
    if expected != got:
        raise Refused(f"{what} is not what this holder approved", code=code, expected=str(expected), got=str(got))
