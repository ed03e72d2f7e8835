"""Offers of a visit: sealed for one holder, opened once, checked before the key is touched."""

from __future__ import annotations

import base64
from dataclasses import dataclass
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from shared.attestation.channel import (
    open_offer,
    seal_offer,
    verify_offer,
)
from shared.canonical import json_bytes, sha256, sha512
from shared.claims.visit import CursorRange, Grant
from shared.crypto.hpke import OneTimeKey, seal
from shared.crypto.signing import PartyKey
from shared.crypto.visit_key import VisitKey
from shared.errors import BadRequest, ProtocolViolation, VerificationFailed
from shared.wire.visit import OfferDocument, Signed, VisitOffer
from tests.adversary.rows import attack
from tests.attestation.channel_world import (
    CHANNEL,
    HOLDER,
    MANIFEST,
    ORCHESTRATOR,
    OTHER_SESSION,
    SESSION,
    b64,
    channel_offer,
    channel_proof,
    code_of,
    holder_checks,
    orchestrator_checks,
    orchestrator_runtime,
)
from tests.attestation.cpu_world import AT

VISIT_KEY = VisitKey(key=b"k" * 32, iv_mask=b"m" * 12, engine=3, channel_counter=9)


@dataclass
class Visit:
    key: OneTimeKey
    statement: Signed
    document: OfferDocument
    offer: VisitOffer

    def check(self, offer: VisitOffer | None = None, **changes: Any) -> Any:
        options: dict[str, Any] = {
            "signed_key": self.statement,
            "signing_key": ORCHESTRATOR.public,
            "session": SESSION,
            "holder": "north",
            "channel": CHANNEL,
            "manifest": MANIFEST,
            "at": AT,
        }
        return verify_offer(offer or self.offer, **{**options, **changes})


def document_for(public: bytes, **changes: Any) -> OfferDocument:
    digest = sha256(public).hex()
    grant = Grant(
        session=SESSION,
        visit="v_0123456789abcdef",
        life=1,
        epoch=4,
        holder="north",
        port="holder-north",
        region=2,
        byte_budget=4096,
        cursor=CursorRange(start=0, count=8),
        dataset_root="d0" * 32,
        dataset_records=8,
        record_bytes=16,
        chunk_bytes=128,
        recipient=digest,
        expires_at=int(AT) + 60,
    )
    fields: dict[str, Any] = {
        "channel": CHANNEL,
        "manifest": MANIFEST,
        "grant": grant,
        "gpu": "gpu-0",
        "agent_url": "http://127.0.0.1:1",
        "one_time_key": digest,
        "iv_epoch": 4,
        "round": 1,
        "index": 1,
        "attempt": 1,
        "log_size": 0,
        "log_root": "00" * 32,
        "log_time": 1,
        "log_signature": "",
    }
    return OfferDocument(**{**fields, **changes})


def visit(**changes: Any) -> Visit:
    key = OneTimeKey.generate()
    holder = orchestrator_checks(channel_proof(holder_checks(channel_offer(orchestrator_runtime())), key=key))
    statement = Signed(
        document=b64(holder.one_time_key.document),
        signature=b64(HOLDER.sign("gput/one-time-key", holder.one_time_key.document)),
    )
    document = document_for(key.public, **changes)
    offer = seal_offer(document, visit_key=VISIT_KEY, one_time_key=holder.one_time_key, signing_key=ORCHESTRATOR)
    return Visit(key, statement, document, offer)


def test_an_offer_opens_once() -> None:
    one = visit()
    verified = one.check()
    assert verified.document == one.document
    assert open_offer(verified, one.key) == VISIT_KEY
    with pytest.raises(ProtocolViolation) as caught:
        open_offer(verified, one.key)
    assert caught.value.code == "one-time-key-used"


@attack("V23", any="stopped: offers are signed by the attested session key")
def test_the_signature_is_checked_before_the_key_is_touched() -> None:
    one = visit()
    raw = base64.b64decode(one.offer.document)
    # The platform knows the one-time public key and can seal a key of its own; it cannot sign.
    own_key = seal(one.key.public, VISIT_KEY.to_bytes(), sha512(b"gput/asc/1 seal\x00" + raw))
    forged = one.offer.model_copy(update={"sealed": b64(own_key)})
    assert code_of(lambda: one.check(forged)) == "bad-signature"
    assert not one.key.used
    assert open_offer(one.check(), one.key) == VISIT_KEY


@settings(max_examples=40, deadline=None)
@given(st.sampled_from(["document", "sealed", "signature"]), st.integers(0, 10_000), st.integers(0, 7))
def test_any_changed_byte_of_an_offer_is_refused(part: str, where: int, bit: int) -> None:
    data = bytearray(base64.b64decode(getattr(ONE.offer, part)))
    data[where % len(data)] ^= 1 << bit
    assert code_of(lambda: ONE.check(ONE.offer.model_copy(update={part: b64(bytes(data))}))) == "bad-signature"


ONE = visit()


def test_an_offer_is_for_one_holder_session_channel_manifest_and_time() -> None:
    for change, code in (
        ({"session": OTHER_SESSION}, "offer-session"),
        ({"holder": "south"}, "offer-holder"),
        ({"channel": "c_2"}, "offer-channel"),
        ({"manifest": "cd" * 32}, "offer-manifest"),
        ({"at": AT + 60}, "offer-expired"),
        ({"signing_key": PartyKey.generate().public}, "bad-signature"),
        ({"signed_key": visit().statement}, "bad-signature"),
    ):
        assert code_of(lambda change=change: ONE.check(**change)) == code  # type: ignore[misc]  # bound per turn


def test_an_offer_opens_with_its_own_key_only() -> None:
    other = OneTimeKey.generate()
    assert code_of(lambda: open_offer(ONE.check(), other)) == "offer-recipient"
    assert not other.used


def test_a_grant_for_another_recipient_is_refused_though_signed() -> None:
    one = visit()
    grant = one.document.grant.model_copy(update={"recipient": "00" * 32})
    raw = json_bytes(one.document.model_copy(update={"grant": grant}).model_dump(mode="json"))
    sealed = base64.b64decode(one.offer.sealed)
    transcript = sha512(b"gput/offer\x00" + base64.b64decode(one.statement.document) + raw + sealed)
    offer = VisitOffer(
        document=b64(raw), sealed=b64(sealed), signature=b64(ORCHESTRATOR.sign("gput/offer", transcript))
    )
    assert code_of(lambda: one.check(offer)) == "offer-recipient"


def test_sealing_for_a_mismatched_grant_is_refused() -> None:
    one = visit()
    holder = orchestrator_checks(
        channel_proof(holder_checks(channel_offer(orchestrator_runtime())), key=OneTimeKey.generate())
    )
    for document in (one.document, document_for(holder.one_time_key.public, channel="c_2")):
        with pytest.raises(BadRequest) as caught:
            seal_offer(document, visit_key=VISIT_KEY, one_time_key=holder.one_time_key, signing_key=ORCHESTRATOR)
        assert caught.value.code == "offer-mismatch"


def test_a_sealed_key_of_a_wrong_shape_is_unsealable_and_silent() -> None:
    one = visit()
    raw = base64.b64decode(one.offer.document)
    sealed = seal(one.key.public, b"kkkk", sha512(b"gput/asc/1 seal\x00" + raw))
    transcript = sha512(b"gput/offer\x00" + base64.b64decode(one.statement.document) + raw + sealed)
    offer = VisitOffer(
        document=b64(raw), sealed=b64(sealed), signature=b64(ORCHESTRATOR.sign("gput/offer", transcript))
    )
    with pytest.raises(VerificationFailed) as caught:
        open_offer(one.check(offer), one.key)
    assert caught.value.code == "offer-unsealable"
    assert "kkkk" not in str(caught.value)
