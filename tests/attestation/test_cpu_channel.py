"""The attested sealed channel: what relays, reflections, mix-ups and rewrites run into (reference cpu-tee.md 5.2)."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from shared.attestation.channel import (
    CLOCK_SLACK_S,
    gpu_evidence_digest,
    report_data,
)
from shared.attestation.nonces import gpu_nonce
from shared.canonical import json_bytes, sha256, sha512
from shared.crypto.signing import PartyKey
from shared.errors import BadRequest, GputError
from tests.adversary.rows import attack
from tests.attestation.channel_world import (
    EXPECTED,
    GPU,
    HOLDER,
    LIFETIME,
    ORCHESTRATOR,
    ORCHESTRATOR_NONCE,
    OTHER_SESSION,
    b64,
    channel_offer,
    code_of,
    gpu_check,
    holder_checks,
    orchestrator_runtime,
)
from tests.attestation.cpu_world import AT, Machine


def test_a_good_orchestrator_is_believed_with_its_gpu() -> None:
    raw, nonces = orchestrator_runtime(), []  # type: tuple[bytes, list[bytes]]
    seen = holder_checks(channel_offer(raw), gpu=gpu_check(nonces))
    assert (seen.signing_key, seen.runtime_data, seen.gpu) == (ORCHESTRATOR.public, raw, "gpu")
    assert report_data("orchestrator", raw) == sha512(b"gput/asc/1 orchestrator\x00" + raw) == seen.cvm.report_data
    expected = gpu_nonce(b"\x11" * 32, b"\x22" * 48, 0, ORCHESTRATOR.public)
    assert nonces == [expected]
    with pytest.raises(TypeError):
        replace(seen)


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


@attack("V16", any="stopped: fresh nonces, lifetimes, roles in what is quoted")
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


@attack("V15", any="stopped: the quote covers the session's signing key")
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
