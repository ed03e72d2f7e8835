"""Attestation results that somebody made up, changed, or signed for another purpose: none is read."""

from __future__ import annotations

import base64
import json
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest

from shared.attestation.ar4si import Tier
from shared.attestation.ear import PROFILE, AttestationResult, claims_set, read_result
from shared.canonical import json_bytes
from shared.crypto.jws import parse_compact, sign_compact, verify_compact
from shared.crypto.signing import PartyKey
from shared.errors import BadRequest, VerificationFailed
from tests.attestation.cpu_world import AT, Machine
from tests.attestation.ear_world import KEY, read, tdx, token
from tests.attestation.gpu_evidence_world import GpuWorld


@pytest.fixture(scope="module")
def machine() -> Machine:
    return Machine()


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> GpuWorld:
    return GpuWorld.make(tmp_path_factory.mktemp("installation"))


def test_another_key_another_type_another_time(machine: Machine) -> None:
    good = token(tdx(machine))
    with pytest.raises(VerificationFailed, match="another") as caught:
        read_result(good, PartyKey.generate().public, at=AT)
    assert caught.value.code == "token-key"
    with pytest.raises(VerificationFailed, match="typ is another"):
        verify_compact(good, KEY.public, typ="JWT")
    for at, age in ((AT - 100, None), (AT + 1000, 999.0)):
        with pytest.raises(VerificationFailed) as late:
            read_result(good, KEY.public, at=at, max_age_s=age)
        assert late.value.code == "result-time"
    with pytest.raises(TypeError):
        AttestationResult(Tier.AFFIRMING, 0, {}, {}, {})
    with pytest.raises(TypeError):
        replace(read(good), status=Tier.AFFIRMING)


def test_no_bit_of_a_token_is_free(machine: Machine) -> None:
    good = token(tdx(machine, data=None))
    tried = 0
    for position in range(0, len(good), max(1, len(good) // 200)):
        for other in ("A", "b", "0", "-", ".", "="):
            if good[position] != other:
                tried += 1
                with pytest.raises((BadRequest, VerificationFailed)):
                    read(good[:position] + other + good[position + 1 :])
    assert tried > 800


def b64(value: Any) -> str:
    raw = value if isinstance(value, bytes) else json_bytes(value)
    return base64.urlsafe_b64encode(raw).rstrip(b"=").decode()


def zoo() -> Iterator[str]:
    """Texts that are no token of ours."""
    good = sign_compact({"eat_profile": PROFILE}, KEY, typ="eat+jwt")
    head, body, signature = good.split(".")
    yield from (
        "",
        ".",
        "..",
        "...",
        "a.b.c",
        good + ".",
        good + "=",
        good.replace(".", "", 1),
        "x" * (1 << 21),
        "é.é.é",
    )
    none = b64({"alg": "none", "kid": KEY.fingerprint, "typ": "eat+jwt"})
    yield from (f"{none}.{body}.", f"{none}.{body}.{signature}")
    jwk = b64({"alg": "EdDSA", "jwk": {}, "kid": KEY.fingerprint, "typ": "eat+jwt"})
    yield f"{jwk}.{body}.{signature}"
    hmac = b64({"alg": "HS256", "kid": KEY.fingerprint, "typ": "eat+jwt"})
    yield f"{hmac}.{body}.{signature}"
    yield f"{b64(b'[]')}.{body}.{signature}"
    yield f"{b64(json.dumps(json.loads(base64.urlsafe_b64decode(head + '=='))).encode())}.{body}.{signature}"  # with spaces
    yield f"{head}.{b64(b'[' * 50_000 + b']' * 50_000)}.{signature}"
    yield f"{head}.{b64(b'{' + b'nonsense')}.{signature}"


def test_the_zoo_of_tokens() -> None:
    for text in zoo():
        with pytest.raises((BadRequest, VerificationFailed)):
            read(text)


@pytest.mark.parametrize("change", [
    {"iat": "now"}, {"iat": True}, {"iat": 1.5}, {"submods": {}}, {"submods": []}, {"submods": {"gpu": 3}}, {"ear.status": ["warning"]},
    {"ear.status": "affirming"}, {"ear.status": 2}, {"gput.about": None}, {"gput.about": {"session": 3}}, {"eat_profile": "other"},
])  # fmt: skip
def test_a_signed_token_of_another_form_is_refused(machine: Machine, change: dict[str, Any]) -> None:
    claims = claims_set([tdx(machine)], build="test", at=int(AT)) | change
    with pytest.raises((BadRequest, VerificationFailed)):
        read(sign_compact(claims, KEY, typ="eat+jwt"))


@pytest.mark.parametrize("change", [
    {"gput.checks": []}, {"gput.checks": [{"status": ["fail"]}]}, {"gput.checks": [{"status": "fail"}]}, {"gput.verdict": "yes"},
    {"gput.verdict": "refused"}, {"ear.status": "affirming"}, {"ear.trustworthiness-vector": {}}, {"gput.root-set": 3},
    {"ear.trustworthiness-vector": {"hardware": 200}}, {"ear.trustworthiness-vector": {"hardware": True}},
    {"ear.trustworthiness-vector": {"hardware": -33, "executables": 96}},
])  # fmt: skip
def test_a_signed_token_that_claims_more_than_it_bears_out_is_refused(machine: Machine, change: dict[str, Any]) -> None:
    claims = claims_set([tdx(machine)], build="test", at=int(AT))
    claims["submods"]["cvm"] |= change
    with pytest.raises((BadRequest, VerificationFailed)):
        read(sign_compact(claims, KEY, typ="eat+jwt"))


@pytest.mark.parametrize("root", [None, ""])
def test_what_stands_on_no_root_is_not_accepted(machine: Machine, root: str | None) -> None:
    """No verifier of ours says so; it would read as hardware, since it is not EMULATED."""
    claims = claims_set([tdx(machine)], build="test", at=int(AT))
    part = claims["submods"]["cvm"]
    part |= {"gput.root-set": root, "gput.backend": None}
    part["ear.trustworthiness-vector"]["hardware"] = 32
    part["ear.status"] = claims["ear.status"] = "warning"
    with pytest.raises(VerificationFailed, match="no root") as caught:
        read(sign_compact(claims, KEY, typ="eat+jwt"))
    assert caught.value.code == "result-contradicts"
    part["gput.root-set"] = "INTEL"
    assert read(sign_compact(claims, KEY, typ="eat+jwt")).accepted


def test_what_is_signed_as_a_token_is_signed_as_nothing_else() -> None:
    text = sign_compact({"a": 1}, KEY, typ="eat+jwt")
    signed, _, _ = text.rpartition(".")
    _, _, signature = parse_compact(text)
    assert KEY.sign_jws(signed.encode()) == signature
    for other in (
        b"",
        b"eyJ",
        b"eyJa\x00.b",
        b'"@method": GET',
        b"\x84\x6aSignature1",
        b"eyJ.a.b",
        b"gput/offer\x00x",
        b"eyJa.b\n",
    ):
        with pytest.raises(BadRequest):
            KEY.sign_jws(other)
