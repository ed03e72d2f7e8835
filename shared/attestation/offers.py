"""Sealing one visit's key to one holder, and opening it. Knows no GPU, no HTTP, no store.

    signature = Ed25519(session signing key, "gput/offer" 00 ‖ SHA-512("gput/offer" 00 ‖ one-time-key document ‖ offer document ‖ sealed))
    sealed    = HPKE(one-time key, CBOR VisitKey, info = SHA-512("gput/asc/1 seal" 00 ‖ offer document))

HPKE alone authenticates nobody (a platform could seal a key of its own), hence the signature, checked before the key is used. Both
documents are JSON objects and end where their bracket closes, so their concatenation reads in one way only.
"""

from __future__ import annotations

import base64
from dataclasses import InitVar, dataclass

from pydantic import ValidationError

from shared.attestation.one_time_keys import VerifiedOneTimeKey, decoded
from shared.canonical import json_bytes, json_value, sha256, sha512
from shared.crypto.hpke import OneTimeKey, seal
from shared.crypto.signing import PartyKey, verify
from shared.crypto.visit_key import VisitKey
from shared.errors import BadRequest, VerificationFailed
from shared.wire.visit import OfferDocument, Signed, VisitOffer
from shared.wire.visit import OneTimeKey as OneTimeKeyDocument

LABEL = "gput/offer"
SEAL_CONTEXT = b"gput/asc/1 seal\x00"
_MINT = object()


@dataclass(frozen=True)
class VerifiedOffer:
    """An offer whose signature and addressee were checked; nothing secret was touched. Only `verify_offer` makes it."""

    document: OfferDocument
    document_bytes: bytes
    sealed: bytes
    _mint: InitVar[object] = None  # kept nowhere, so that `replace` cannot carry it into a changed copy

    def __post_init__(self, _mint: object) -> None:
        if _mint is not _MINT:
            raise TypeError("VerifiedOffer is made by verify_offer only")


def seal_offer(
    document: OfferDocument, *, visit_key: VisitKey, one_time_key: VerifiedOneTimeKey, signing_key: PartyKey
) -> VisitOffer:
    """The orchestrator's offer of one visit.

    A retry must resend the same offer: sealing again is another message under the same visit key.

    Raises:
        BadRequest: `offer-mismatch`: document, grant and one-time key are not of one visit.
    """
    grant = document.grant
    if (document.one_time_key, grant.recipient) != (one_time_key.digest, one_time_key.digest):
        raise BadRequest("the offer names another one-time key than it is sealed to", code="offer-mismatch")
    if (grant.session, grant.holder, document.channel) != (
        one_time_key.session,
        one_time_key.holder,
        one_time_key.channel,
    ):
        raise BadRequest("offer and one-time key belong to different channels", code="offer-mismatch")
    raw = json_bytes(document.model_dump(mode="json"))
    sealed = seal(one_time_key.public, visit_key.to_bytes(), _seal_info(raw))
    signature = signing_key.sign(LABEL, _transcript(one_time_key.document, raw, sealed))
    return VisitOffer(
        document=base64.b64encode(raw).decode(),
        sealed=base64.b64encode(sealed).decode(),
        signature=base64.b64encode(signature).decode(),
    )


def verify_offer(
    offer: VisitOffer,
    *,
    signed_key: Signed,
    signing_key: bytes,
    session: str,
    holder: str,
    channel: str,
    manifest: str,
    at: float,
) -> VerifiedOffer:
    """The holder's check before any key is touched: signature, addressee, manifest, recipient, expiry.

    Args:
        signed_key: the holder's own statement of the one-time key this offer answers.
        signing_key: the verified orchestrator's session signing key, raw.

    Raises:
        BadRequest: `malformed-offer`, `malformed-base64`.
        VerificationFailed: `bad-signature`, `offer-session`, `offer-holder`, `offer-channel`, `offer-manifest`,
            `offer-recipient`, `offer-expired`.
    """
    key_document, raw, sealed = decoded(signed_key.document), decoded(offer.document), decoded(offer.sealed)
    verify(signing_key, LABEL, _transcript(key_document, raw, sealed), decoded(offer.signature))
    try:
        document = OfferDocument.model_validate(json_value(raw))
        own = OneTimeKeyDocument.model_validate(json_value(key_document))
    except ValidationError:
        raise BadRequest("the offer document is malformed", code="malformed-offer") from None
    recipient = sha256(decoded(own.key)).hex()
    _check_addressee(
        ("session", session, document.grant.session),
        ("holder", holder, document.grant.holder),
        ("channel", channel, document.channel),
        ("manifest", manifest, document.manifest),
        ("recipient", recipient, document.one_time_key),
        ("recipient", recipient, document.grant.recipient),
    )
    if at >= document.grant.expires_at:
        raise VerificationFailed("the offer has expired", code="offer-expired", got=str(document.grant.expires_at))
    return VerifiedOffer(document, raw, sealed, _MINT)


def open_offer(offer: VerifiedOffer, key: OneTimeKey) -> VisitKey:
    """The visit key; spends the one-time key, which must be the recipient.

    Raises:
        ProtocolViolation: `one-time-key-used`.
        VerificationFailed: `offer-recipient` (key untouched), `offer-unsealable`.
    """
    if sha256(key.public).hex() != offer.document.one_time_key:
        raise VerificationFailed("the offer is sealed to another one-time key", code="offer-recipient")
    try:
        return VisitKey.from_bytes(key.open(offer.sealed, _seal_info(offer.document_bytes)))
    except (VerificationFailed, BadRequest):
        raise VerificationFailed("the visit key in the offer cannot be opened", code="offer-unsealable") from None


def _check_addressee(*sides: tuple[str, str, str]) -> None:
    for what, expected, got in sides:
        if expected != got:
            raise VerificationFailed(
                f"the offer is for another {what}", code=f"offer-{what}", expected=expected, got=got
            )


def _transcript(one_time_key: bytes, document: bytes, sealed: bytes) -> bytes:
    return sha512(LABEL.encode() + b"\x00" + one_time_key + document + sealed)


def _seal_info(document: bytes) -> bytes:
    return sha512(SEAL_CONTEXT + document)
