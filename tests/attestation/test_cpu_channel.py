"""The attested sealed channel: what relays, reflections, mix-ups and rewrites run into (reference cpu-tee.md 5.2)."""

from __future__ import annotations

import base64
import json
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from shared.attestation.channel import (
    CLOCK_SLACK_S,
    OrchestratorExpectation,
    VerifiedHolder,
    VerifiedOrchestrator,
    build_holder_runtime,
    build_orchestrator_runtime,
    gpu_evidence_digest,
    open_offer,
    report_data,
    seal_offer,
    sign_one_time_key,
    verify_holder,
    verify_offer,
    verify_one_time_key,
    verify_orchestrator,
)
from shared.attestation.nonces import gpu_nonce
from shared.canonical import json_bytes, sha256, sha512
from shared.claims.visit import CursorRange, Grant
from shared.crypto.hpke import OneTimeKey, seal
from shared.crypto.signing import PartyKey
from shared.crypto.visit_key import VisitKey
from shared.errors import BadRequest, GputError, ProtocolViolation, VerificationFailed
from shared.wire.visit import ChannelOffer, ChannelProof, GpuEvidence, OfferDocument, Signed, VisitOffer
from tests.attestation.cpu_world import AT, Machine, measured

MACHINE = Machine()
SESSION, OTHER_SESSION = "s_0123456789abcdef", "s_fedcba9876543210"
MANIFEST, CHANNEL = "ab" * 32, "c_1"
HOLDER_NONCE, ORCHESTRATOR_NONCE, ANSWER_NONCE = "01" * 32, "02" * 32, "03" * 32
ENROLLED_ORCHESTRATOR, ENROLLED_HOLDER = PartyKey.generate(), PartyKey.generate()
ORCHESTRATOR, HOLDER = PartyKey.generate(), PartyKey.generate()
GPU = GpuEvidence(report="AAAA", chain="PEM", challenge="11" * 32, th2="22" * 48, epoch=0)
EXPECTED = OrchestratorExpectation(SESSION, "north", MANIFEST, HOLDER_NONCE, ENROLLED_ORCHESTRATOR.public)
LIFETIME = 3600
VISIT_KEY = VisitKey(key=b"k" * 32, iv_mask=b"m" * 12, engine=3, channel_counter=9)


def b64(data: bytes) -> str:
    return base64.b64encode(data).decode()


def orchestrator_runtime(**changes: Any) -> bytes:
    fields: dict[str, Any] = {
        "session": SESSION,
        "holder": "north",
        "manifest": MANIFEST,
        "peer_nonce": HOLDER_NONCE,
        "nonce": ORCHESTRATOR_NONCE,
        "signing_key": ORCHESTRATOR.public,
        "enrolled_key": ENROLLED_ORCHESTRATOR.public,
        "gpu_evidence": GPU,
        "not_after": int(AT) + 600,
    }
    return build_orchestrator_runtime(**{**fields, **changes})


def channel_offer(raw: bytes, *, cvm: str = "orchestrator", role: Any = "orchestrator", gpu: GpuEvidence = GPU) -> Any:
    quote = MACHINE.evidence(cvm, report_data(role, raw), measured(raw))
    return ChannelOffer(channel=CHANNEL, runtime_data=b64(raw), evidence=quote, gpu_evidence=gpu)


def gpu_check(seen: list[bytes] | None = None) -> Callable[[GpuEvidence, bytes], str]:
    def check(evidence: GpuEvidence, nonce: bytes) -> str:
        if seen is not None:
            seen.append(nonce)
        if evidence.report != "AAAA":
            raise VerificationFailed("bad report", code="gpu-report")
        return "gpu"

    return check


def holder_checks(offer: ChannelOffer, **changes: Any) -> VerifiedOrchestrator[str]:
    options: dict[str, Any] = {"expected": EXPECTED, "cpu": MACHINE.trust(), "gpu": gpu_check(), "at": AT}
    return verify_orchestrator(offer, **{"max_lifetime_s": LIFETIME, **options, **changes})


def channel_proof(
    seen: VerifiedOrchestrator[str],
    *,
    signing: PartyKey = HOLDER,
    key: OneTimeKey | None = None,
    cvm: str = "holder-north",
    not_after: int = int(AT) + 600,
    channel: str = CHANNEL,
) -> ChannelProof:
    raw = build_holder_runtime(
        seen,
        nonce=ANSWER_NONCE,
        signing_key=signing.public,
        enrolled_key=ENROLLED_HOLDER.public,
        not_after=not_after,
    )
    statement = sign_one_time_key(
        signing,
        session=SESSION,
        holder="north",
        channel=channel,
        nonce=ANSWER_NONCE,
        public=(key or OneTimeKey.generate()).public,
    )
    quote = MACHINE.evidence(cvm, report_data("holder", raw), measured(raw))
    return ChannelProof(runtime_data=b64(raw), evidence=quote, one_time_key=statement)


def orchestrator_checks(proof: ChannelProof, raw: bytes | None = None, **changes: Any) -> VerifiedHolder:
    options: dict[str, Any] = {
        "channel": CHANNEL,
        "orchestrator_runtime": raw or orchestrator_runtime(),
        "enrolled_key": ENROLLED_HOLDER.public,
        "cpu": MACHINE.trust(),
        "max_lifetime_s": LIFETIME,
        "at": AT,
    }
    return verify_holder(proof, **{**options, **changes})


def code_of(act: Callable[[], object]) -> str:
    with pytest.raises(VerificationFailed) as caught:
        act()
    return caught.value.code


# ------------------------------------------------------------------ orchestrator, seen by the holder


def test_a_good_orchestrator_is_believed_with_its_gpu() -> None:
    raw, nonces = orchestrator_runtime(), []  # type: tuple[bytes, list[bytes]]
    seen = holder_checks(channel_offer(raw), gpu=gpu_check(nonces))
    assert (seen.signing_key, seen.runtime_data, seen.gpu) == (ORCHESTRATOR.public, raw, "gpu")
    assert report_data("orchestrator", raw) == sha512(b"gput/asc/1 orchestrator\x00" + raw) == seen.cvm.report_data
    expected = gpu_nonce(b"\x11" * 32, b"\x22" * 48, 0, ORCHESTRATOR.public)
    assert nonces == [expected]
    with pytest.raises(TypeError):
        replace(seen, _mint=None)


@pytest.mark.parametrize(
    ("change", "code"),
    [
        ({"session": OTHER_SESSION}, "channel-session"),
        ({"holder": "south"}, "channel-holder"),
        ({"manifest": "cd" * 32}, "channel-manifest"),
        ({"peer_nonce": ORCHESTRATOR_NONCE}, "channel-nonce"),
        ({"enrolled_key": HOLDER.public}, "channel-enrolled-key"),
        ({"not_after": int(AT)}, "channel-lifetime"),
        ({"not_after": int(AT) + LIFETIME + CLOCK_SLACK_S + 1}, "channel-lifetime"),
        ({"gpu_evidence": GPU.model_copy(update={"epoch": 1})}, "channel-gpu-evidence"),
    ],
)
def test_genuine_evidence_for_something_else_is_refused(change: dict[str, Any], code: str) -> None:
    assert code_of(lambda: holder_checks(channel_offer(orchestrator_runtime(**change)))) == code


def test_relay_of_another_offer_replay_and_role_confusion() -> None:
    raw = orchestrator_runtime()
    assert code_of(lambda: holder_checks(channel_offer(raw, cvm="holder-south"))) == "cvm-measurement"
    assert code_of(lambda: holder_checks(channel_offer(raw, role="holder"))) == "quote-report-data"
    fresh = replace(EXPECTED, nonce="99" * 32)
    assert code_of(lambda: holder_checks(channel_offer(raw), expected=fresh)) == "channel-nonce"
    assert code_of(lambda: holder_checks(channel_offer(raw), at=AT + 601)) == "channel-lifetime"
    foreign = Machine("foreign")
    relayed = channel_offer(raw).model_copy(
        update={"evidence": foreign.evidence("orchestrator", report_data("orchestrator", raw))}
    )
    assert code_of(lambda: holder_checks(relayed)) == "quote-root-unknown"


def test_a_quote_does_not_move_to_another_signing_key() -> None:
    genuine, thief = channel_offer(orchestrator_runtime()), PartyKey.generate()
    stolen = genuine.model_copy(update={"runtime_data": b64(orchestrator_runtime(signing_key=thief.public))})
    assert code_of(lambda: holder_checks(stolen)) == "quote-report-data"


def test_reserialised_bytes_are_other_bytes() -> None:
    raw = orchestrator_runtime()
    pretty = json.dumps(json.loads(raw), indent=1).encode()
    assert json.loads(pretty) == json.loads(raw)
    offer = channel_offer(raw).model_copy(update={"runtime_data": b64(pretty)})
    assert code_of(lambda: holder_checks(offer)) == "quote-report-data"


def test_swapped_gpu_evidence_is_refused() -> None:
    raw = orchestrator_runtime()
    other = GPU.model_copy(update={"report": "BBBB"})
    assert code_of(lambda: holder_checks(channel_offer(raw, gpu=other))) == "channel-gpu-evidence"
    bad = channel_offer(orchestrator_runtime(gpu_evidence=other), gpu=other)
    assert code_of(lambda: holder_checks(bad)) == "gpu-report"
    assert gpu_evidence_digest(GPU) == sha256(json_bytes(GPU.model_dump(mode="json"))).hex()


def test_roles_inside_the_runtime_data_count_as_well() -> None:
    document = json.loads(orchestrator_runtime())
    for change, code in (
        ({"role": "holder"}, "channel-role"),
        ({"previous": "00" * 32}, "channel-previous"),
        ({"gpu_evidence": None}, "channel-gpu-evidence"),
    ):
        raw = json_bytes({**document, **change})
        assert code_of(lambda raw=raw: holder_checks(channel_offer(raw))) == code  # type: ignore[misc]  # bound per turn


def test_a_wanted_gpu_challenge_must_have_been_answered() -> None:
    offer = channel_offer(orchestrator_runtime())
    holder_checks(offer, expected=replace(EXPECTED, gpu_challenge=GPU.challenge))
    wanted = replace(EXPECTED, gpu_challenge="12" * 32)
    assert code_of(lambda: holder_checks(offer, expected=wanted)) == "channel-gpu-challenge"


def test_malformed_runtime_data_is_refused() -> None:
    document = json.loads(orchestrator_runtime())
    for change in ({"extra": 1}, {"profile": "gput/asc/2"}, {"role": "platform"}, {"nonce": "00"}):
        with pytest.raises(BadRequest):
            holder_checks(channel_offer(json_bytes({**document, **change})))
    with pytest.raises(BadRequest):
        holder_checks(channel_offer(b"\xff"))
    with pytest.raises(BadRequest):
        orchestrator_runtime(nonce="short")


@settings(max_examples=60, deadline=None)
@given(st.data())
def test_any_changed_byte_of_runtime_data_is_refused(data: st.DataObject) -> None:
    raw = bytearray(orchestrator_runtime())
    offer = channel_offer(bytes(raw))
    position = data.draw(st.integers(0, len(raw) - 1))
    raw[position] ^= 1 << data.draw(st.integers(0, 6))
    with pytest.raises(GputError):
        holder_checks(offer.model_copy(update={"runtime_data": b64(bytes(raw))}))


# ------------------------------------------------------------------ holder, seen by the orchestrator


def test_a_good_holder_is_believed_with_its_first_key() -> None:
    key = OneTimeKey.generate()
    holder = orchestrator_checks(channel_proof(holder_checks(channel_offer(orchestrator_runtime())), key=key))
    assert holder.signing_key == HOLDER.public
    assert holder.one_time_key.public == key.public
    assert holder.one_time_key.digest == sha256(key.public).hex()
    assert holder.cvm.role == "data_holder"
    with pytest.raises(TypeError):
        replace(holder, _mint=None)


def test_a_holders_answer_is_for_one_offer_only() -> None:
    seen = holder_checks(channel_offer(orchestrator_runtime()))
    proof = channel_proof(seen)
    for change, code in (
        ({"nonce": "77" * 32}, "channel-nonce"),
        ({"session": OTHER_SESSION}, "channel-session"),
        ({"holder": "south"}, "channel-holder"),
        ({"manifest": "cd" * 32}, "channel-manifest"),
        ({"not_after": int(AT) + 601}, "channel-previous"),
    ):
        own = orchestrator_runtime(**change)
        assert code_of(lambda own=own: orchestrator_checks(proof, own)) == code  # type: ignore[misc]  # bound per turn
    assert (
        code_of(lambda: orchestrator_checks(proof, enrolled_key=PartyKey.generate().public)) == "channel-enrolled-key"
    )
    assert code_of(lambda: orchestrator_checks(proof, at=AT + 601)) == "channel-lifetime"
    assert code_of(lambda: orchestrator_checks(channel_proof(seen, cvm="orchestrator"))) == "cvm-measurement"
    late = channel_proof(seen, not_after=int(AT) + LIFETIME + CLOCK_SLACK_S + 1)
    assert code_of(lambda: orchestrator_checks(late)) == "channel-lifetime"


def test_reflection_is_refused() -> None:
    raw = orchestrator_runtime()
    seen = holder_checks(channel_offer(raw))
    mirrored = ChannelProof(
        runtime_data=b64(raw),
        evidence=MACHINE.evidence("orchestrator", report_data("orchestrator", raw)),
        one_time_key=channel_proof(seen).one_time_key,
    )
    assert code_of(lambda: orchestrator_checks(mirrored)) == "channel-role"
    assert code_of(lambda: orchestrator_checks(channel_proof(seen, signing=ORCHESTRATOR))) == "channel-reflection"
    assert code_of(lambda: orchestrator_checks(channel_proof(seen, signing=ENROLLED_HOLDER))) == "channel-reflection"


def test_one_time_keys_are_the_session_keys_word() -> None:
    seen = holder_checks(channel_offer(orchestrator_runtime()))
    good = channel_proof(seen)
    foreign = channel_proof(seen, signing=PartyKey.generate()).one_time_key
    stolen = good.model_copy(update={"one_time_key": foreign})
    assert code_of(lambda: orchestrator_checks(stolen)) == "bad-signature"
    assert code_of(lambda: orchestrator_checks(channel_proof(seen, channel="c_2"))) == "one-time-key-channel"
    names = {"session": SESSION, "holder": "north", "channel": CHANNEL}
    for what, other in (("session", OTHER_SESSION), ("holder", "south"), ("channel", "c_9")):
        changed = {**names, what: other}
        code = code_of(
            lambda changed=changed: verify_one_time_key(good.one_time_key, signing_key=HOLDER.public, **changed)  # type: ignore[misc]  # bound per turn
        )
        assert code == f"one-time-key-{what}"
    short = sign_one_time_key(HOLDER, nonce=ANSWER_NONCE, public=b"short", **names)
    with pytest.raises(BadRequest):
        verify_one_time_key(short, signing_key=HOLDER.public, **names)


# ------------------------------------------------------------------ offers


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
