"""Admission of an offer: everything that must be true before the visit key is opened. Commits nothing, seals nothing.

Order: channel open, key known, signature and addressee; then approval and memory by the rules of data_holder.protocol.offer.
"""

from __future__ import annotations

import base64
from dataclasses import dataclass

from pydantic import ValidationError

from data_holder.approvals import Approvals
from data_holder.channel import Channels, OpenChannel
from data_holder.ledger import Ledger
from data_holder.links import OrchestratorLink
from data_holder.log_reader import LogReader
from data_holder.protocol.offer import Agreement, check_offer
from data_holder.protocol.shares import check_shares
from data_holder.protocol.state import RememberedHead, SessionState
from data_holder.requests import Approved, verify_manifest
from shared.attestation.channel import VerifiedOffer, verify_offer
from shared.canonical import json_value
from shared.errors import BadRequest
from shared.service.clock import Clock
from shared.wire.visit import OfferDocument, VisitOffer


@dataclass(frozen=True)
class Admitted:
    """An offer that may be served, with what it relies on."""

    offer: VerifiedOffer
    approved: Approved
    channel: OpenChannel
    head: RememberedHead

    @property
    def document(self) -> OfferDocument:
        return self.offer.document


class Admission:
    """Holds offers against approvals, channels and memory."""

    def __init__(
        self, ledger: Ledger, approvals: Approvals, channels: Channels, link: OrchestratorLink, clock: Clock
    ) -> None:
        self._ledger, self._approvals, self._channels = ledger, approvals, channels
        self._link, self._clock = link, clock

    def peek(self, session: str, offer: VisitOffer) -> OfferDocument:
        """The offer's document, *unverified*: only to find keys and to recognise repeats. Raises: BadRequest `malformed-offer`."""
        try:
            document = OfferDocument.model_validate(json_value(base64.b64decode(offer.document, validate=True)))
        except (ValidationError, ValueError) as error:
            raise BadRequest("the offer document is malformed", code="malformed-offer") from error
        if document.grant.session != session:
            raise BadRequest("the offer is about another session than its inbox item", code="malformed-offer")
        return document

    def authenticate(self, session: str, offer: VisitOffer) -> tuple[VerifiedOffer, OpenChannel]:
        """Whether the attested orchestrator said this, to this holder, on this channel.

        Raises:
            ProtocolViolation: no usable channel or key; the holder opens a new channel and does not answer the offer.
            VerificationFailed: `bad-signature` (nobody's offer), `offer-…` (authentic, but not for this holder and manifest).
        """
        seen = self.peek(session, offer)
        channel = self._channels.get(session)
        signed_key = channel.signed_key(seen.one_time_key)
        manifest = verify_manifest(self._ledger.state(session).manifest, self._approvals.name, self._approvals.keys)
        verified = verify_offer(
            offer, signed_key=signed_key, signing_key=channel.orchestrator.signing_key, session=session,
            holder=self._approvals.name, channel=channel.orchestrator.channel, manifest=manifest.digest, at=self._clock(),
        )  # fmt: skip
        return verified, channel

    async def admit(self, session: str, verified: VerifiedOffer, channel: OpenChannel) -> Admitted:
        """Hold an authentic offer against approval and memory.

        Raises:
            NotPermitted, Refused, VerificationFailed: the offer is refused, with the rule's code.
        """
        approved = self._approvals.approved(session)
        state, document, request = self._ledger.state(session), verified.document, approved.request
        agreement = Agreement(
            request.manifest, request.digest, self._approvals.name, approved.record_bytes, approved.records,
            approved.dataset_root,
        )  # fmt: skip
        proof = await self._consistency(document, state)
        head = check_offer(
            document, agreement, state, signing_key=channel.orchestrator.signing_key, proof=proof, at=self._clock()
        )
        check_shares(document, channel.share(document.one_time_key), channel.orchestrator.gpu)
        return Admitted(verified, approved, channel, head)

    async def _consistency(self, document: OfferDocument, state: SessionState) -> list[bytes]:
        """The proof from the remembered head: the offer's own when it starts there, else asked for."""
        if state.head is None or document.log_size <= state.head.size:
            return []
        if document.log_from == state.head.size:
            return [bytes.fromhex(node) for node in document.log_consistency]
        return await LogReader(self._link, state).consistency(state.head.size, document.log_size)
