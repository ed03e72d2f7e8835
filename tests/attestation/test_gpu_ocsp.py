"""Stapled OCSP responses: who may answer for whom, when, and what a policy makes of the answer. Knows no session."""

from __future__ import annotations

import base64
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509 import ocsp
from cryptography.x509.oid import ExtendedKeyUsageOID

from gpu_agent.platform import device_pki as pki
from shared.attestation.gpu_examination import GpuFindings, examine_gpu_evidence
from shared.attestation.gpu_ocsp import MAX_RESPONSE_BYTES, MAX_RESPONSES, check_revocation, parse_responses
from shared.attestation.gpu_policy import GpuTrust
from shared.attestation.results import CheckStatus
from shared.claims.manifest import GpuRules
from shared.errors import VerificationFailed
from tests.adversary.rows import attack
from tests.attestation.gpu_evidence_world import AT, EMULATED, NONCE, Factory
from tests.attestation.gpu_samples import H100, SAMPLES, h100, needs_samples

FACTORY = Factory()
NOW = datetime.fromtimestamp(AT, UTC)
CHAINS = {
    "ocsp": FACTORY.levels[1:],
    "driver-rim-ocsp": [FACTORY.rims.signer, FACTORY.rims.authority, FACTORY.rims.product, FACTORY.rims.root],
}
CHAINS["vbios-rim-ocsp"] = CHAINS["driver-rim-ocsp"]
REQUIRED = replace(EMULATED, rules=GpuRules(revocation="required"))


def responder(
    issuer: pki.Issued, *, purpose: Any = ExtendedKeyUsageOID.OCSP_SIGNING, until: datetime | None = None
) -> pki.Issued:
    """A delegate that an authority certified to answer for it."""
    key = pki._new_key()
    builder = x509.CertificateBuilder(
        issuer.certificate.subject,
        pki._name("EMULATED OCSP Responder"),
        key.public_key(),
        77,
        pki._NOT_BEFORE,
        until or pki._NO_END,
    )
    builder = builder.add_extension(x509.ExtendedKeyUsage([purpose]), critical=True)
    builder = builder.add_extension(pki._usage(digital_signature=True), critical=True)
    return pki.Issued(builder.sign(issuer.key, hashes.SHA384()), key)


def answer(
    subject: pki.Issued,
    issuer: pki.Issued,
    *,
    signer: pki.Issued | None = None,
    digest: hashes.HashAlgorithm | None = None,
    status: ocsp.OCSPCertStatus = ocsp.OCSPCertStatus.GOOD,
    reason: x509.ReasonFlags | None = None,
    since: datetime = NOW - timedelta(hours=1),
    until: datetime | None = NOW + timedelta(hours=23),
    nonce: bytes | None = None,
    by: ocsp.OCSPResponderEncoding = ocsp.OCSPResponderEncoding.HASH,
    carried: bool = True,
) -> bytes:
    """One DER response about one certificate."""
    signer = signer or responder(issuer)
    revoked = NOW - timedelta(days=3) if status is ocsp.OCSPCertStatus.REVOKED else None
    builder = ocsp.OCSPResponseBuilder().add_response(
        subject.certificate, issuer.certificate, digest or hashes.SHA384(), status, since, until, revoked, reason
    )
    builder = builder.responder_id(by, signer.certificate)
    if carried and signer is not issuer:
        builder = builder.certificates([signer.certificate])
    if nonce is not None:
        builder = builder.add_extension(x509.OCSPNonce(nonce), critical=False)
    return builder.sign(signer.key, hashes.SHA384()).public_bytes(pki.serialization.Encoding.DER)


def answers(name: str, **options: Any) -> list[bytes]:
    """About every certificate of a chain but its root; options count for the first only."""
    pairs = list(zip(CHAINS[name], CHAINS[name][1:], strict=False))
    return [answer(*pair, **(options if number == 0 else {})) for number, pair in enumerate(pairs)]


ALL = answers("ocsp") + answers("driver-rim-ocsp")


def examine(stapled: list[bytes], policy: Any = EMULATED, **options: Any) -> GpuFindings:
    arguments = {"nonce": NONCE, "trust": FACTORY.trust, "at": AT} | options
    return examine_gpu_evidence(FACTORY.report(), FACTORY.pem(), policy=policy, stapled=stapled, **arguments)


def judged(stapled: list[bytes], name: str = "ocsp", policy: Any = EMULATED, **options: Any) -> tuple[CheckStatus, str]:
    check = examine(stapled, policy, **options).examination.find(name)
    return check.status, check.code


def test_good_answers_for_every_chain() -> None:
    for policy in (EMULATED, REQUIRED):
        found = examine(ALL, policy)
        assert all(check.status is CheckStatus.PASS for check in found.examination)
        assert (found.revocation.status, found.driver.revocation.status) == ("good", "good")
    assert FACTORY.refusal(policy=REQUIRED) == "gpu-ocsp-absent"
    assert FACTORY.refusal(policy=REQUIRED, stapled=answers("ocsp")) == "gpu-ocsp-absent"
    assert FACTORY.refusal(policy=REQUIRED, stapled=ALL) == "accepted"
    assert FACTORY.refusal(policy=REQUIRED, stapled=ALL[1:]) == "gpu-ocsp-absent"
    assert FACTORY.refusal() == "accepted"


@pytest.mark.parametrize("digest", [hashes.SHA1(), hashes.SHA256(), hashes.SHA384()])
@pytest.mark.parametrize("by", list(ocsp.OCSPResponderEncoding))
@pytest.mark.parametrize("own", [True, False])
def test_every_way_of_answering(digest: hashes.HashAlgorithm, by: ocsp.OCSPResponderEncoding, own: bool) -> None:
    issuer = CHAINS["ocsp"][1]
    signer = issuer if own else responder(issuer)
    assert judged(answers("ocsp", digest=digest, by=by, signer=signer)) == (CheckStatus.PASS, "")


def test_answers_about_others_are_no_answers() -> None:
    other = Factory()
    stranger = pki.make_identity(CHAINS["ocsp"][1], b"\x05" * 8)
    absent = (CheckStatus.NOT_CHECKED, "gpu-ocsp-absent")
    assert judged([answer(stranger, CHAINS["ocsp"][1]), *answers("ocsp")[1:]]) == absent
    # The same names and serial, but another issuer's key: the CertID differs.
    assert judged([answer(other.identity, other.provisioner), *answers("ocsp")[1:]]) == absent
    wrong_digest = answers("ocsp", digest=hashes.SHA512())
    assert judged(wrong_digest) == absent


def weak(issuer: pki.Issued) -> pki.Issued:
    """A delegate with a P-256 key."""
    key = ec.generate_private_key(ec.SECP256R1())
    good = responder(issuer).certificate
    builder = x509.CertificateBuilder(
        good.issuer, good.subject, key.public_key(), 78, pki._NOT_BEFORE, pki._NO_END, list(good.extensions)
    )
    return pki.Issued(builder.sign(issuer.key, hashes.SHA384()), key)


@pytest.mark.parametrize(
    "signer",
    [
        lambda issuer: responder(CHAINS["ocsp"][2]),  # another level's delegate
        lambda issuer: responder(Factory().provisioner),  # a stranger's, of the same name
        lambda issuer: responder(issuer, purpose=ExtendedKeyUsageOID.SERVER_AUTH),
        lambda issuer: pki.make_rim_signer(issuer),  # certified, but not for this
        lambda issuer: pki.make_intermediate(issuer, "sub"),
        lambda issuer: CHAINS["ocsp"][0],  # the very certificate that is asked about
        weak,
    ],
)
def test_whoever_may_not_answer(signer: Callable[[pki.Issued], pki.Issued]) -> None:
    issuer = CHAINS["ocsp"][1]
    assert judged(answers("ocsp", signer=signer(issuer))) == (CheckStatus.FAIL, "gpu-ocsp-responder")


def test_a_delegate_must_be_carried_and_in_time() -> None:
    issuer = CHAINS["ocsp"][1]
    assert judged(answers("ocsp", carried=False)) == (CheckStatus.FAIL, "gpu-ocsp-responder")
    late = responder(issuer, until=datetime(2024, 1, 1, tzinfo=UTC))
    assert judged(answers("ocsp", signer=late)) == (CheckStatus.EXPIRED, "gpu-ocsp-expired")


def test_a_changed_response() -> None:
    good = answers("ocsp")
    for at in range(60, len(good[0]), 37):
        bad = bytearray(good[0])
        bad[at] ^= 1
        assert judged([bytes(bad), *good[1:]])[0] is not CheckStatus.PASS, at


@pytest.mark.parametrize(
    ("since", "until"),
    [(NOW - timedelta(days=2), NOW - timedelta(days=1)), (NOW + timedelta(hours=1), NOW + timedelta(hours=2))],
)
def test_answers_of_another_time(since: datetime, until: datetime) -> None:
    stale = answers("ocsp", since=since, until=until) + answers("driver-rim-ocsp")
    assert judged(stale) == (CheckStatus.EXPIRED, "gpu-ocsp-expired")
    assert FACTORY.refusal(stapled=stale) == "accepted"  # as if it had been left out
    assert FACTORY.refusal(stapled=stale, policy=REQUIRED) == "gpu-ocsp-expired"
    assert judged([*stale, *answers("ocsp")])[0] is CheckStatus.PASS  # the newest that was out by then counts
    assert judged(answers("ocsp", until=None)) == (CheckStatus.FAIL, "gpu-ocsp-malformed")


def test_a_revocation_does_not_grow_old() -> None:
    """What is stale may be left out, but not what was revoked once."""
    old: dict[str, Any] = {"since": NOW - timedelta(days=9), "until": NOW - timedelta(days=8)}
    revoked = answers("ocsp", status=ocsp.OCSPCertStatus.REVOKED, **old)
    assert FACTORY.refusal(stapled=revoked) == "gpu-ocsp-revoked"
    renewed = [*revoked, *answers("ocsp")]  # a later answer of the same issuer says otherwise
    assert FACTORY.refusal(stapled=renewed) == "accepted"


def test_a_revocation_outlives_its_responders_certificate() -> None:
    """Responders' certificates last for weeks, and what one of them revoked stays revoked."""
    issuer, revoked = CHAINS["ocsp"][1], ocsp.OCSPCertStatus.REVOKED
    ended = responder(issuer, until=NOW - timedelta(days=1))
    old: dict[str, Any] = {"since": NOW - timedelta(days=9), "until": NOW - timedelta(days=8)}
    assert FACTORY.refusal(stapled=answers("ocsp", signer=ended, status=revoked, **old)) == "gpu-ocsp-revoked"


@pytest.mark.parametrize(
    "hides", [{"signer": "ended"}, {"signer": "a stranger's"}, {"since": NOW + timedelta(hours=1)}], ids=str
)
def test_what_hides_no_revocation(hides: dict[str, Any]) -> None:
    """Later answers by who had no say then: one whose certificate had ended, a stranger, and one that was not yet out."""
    issuer = CHAINS["ocsp"][1]
    keys = {
        "ended": responder(issuer, until=NOW - timedelta(days=20)),
        "a stranger's": responder(Factory().provisioner),
    }
    hides = {name: keys.get(value, value) for name, value in hides.items()}
    revoked = answers("ocsp", status=ocsp.OCSPCertStatus.REVOKED, since=NOW - timedelta(hours=3))
    later = answers("ocsp", **{"since": NOW - timedelta(hours=1), **hides})[:1]
    assert FACTORY.refusal(stapled=[*later, *revoked]) == "gpu-ocsp-revoked"


@attack("V08", any="stopped: revocation")
@pytest.mark.parametrize("name", list(CHAINS))
def test_revoked_unknown_and_hold(name: str) -> None:
    revoked = answers(name, status=ocsp.OCSPCertStatus.REVOKED, reason=x509.ReasonFlags.key_compromise)
    assert judged(revoked, name) == (CheckStatus.FAIL, "gpu-ocsp-revoked")
    assert FACTORY.refusal(stapled=revoked) == "gpu-ocsp-revoked"
    unknown = answers(name, status=ocsp.OCSPCertStatus.UNKNOWN)
    assert judged(unknown, name) == (CheckStatus.FAIL, "gpu-ocsp-unknown")
    hold = answers(name, status=ocsp.OCSPCertStatus.REVOKED, reason=x509.ReasonFlags.certificate_hold)
    assert judged(hold, name) == (CheckStatus.FAIL, "gpu-ocsp-revoked")
    lenient = replace(EMULATED, rules=GpuRules(certificate_hold=True))
    check = examine(hold, lenient).examination.find(name)
    assert (check.status, check.reason) == (CheckStatus.PASS, "revoked certificateHold")  # allowed, and not hidden
    assert judged(revoked, name, lenient) == (CheckStatus.FAIL, "gpu-ocsp-revoked")
    assert judged([revoked[0]], name) == (CheckStatus.FAIL, "gpu-ocsp-revoked")  # others absent: revocation weighs more
    last = [*answers(name)[:-1], answer(*CHAINS[name][-2:], status=ocsp.OCSPCertStatus.REVOKED)]
    assert judged(last[1:], name) == (CheckStatus.FAIL, "gpu-ocsp-revoked")


def test_a_nonce_when_one_was_sent() -> None:
    chain = examine([]).chain
    assert chain is not None
    ask: dict[str, Any] = {"at": AT, "first": 1, "nonce": b"n" * 16}
    pairs = list(zip(CHAINS["ocsp"], CHAINS["ocsp"][1:], strict=False))
    right = parse_responses(answer(*pair, nonce=b"n" * 16) for pair in pairs)
    assert check_revocation(chain, right, **ask).status == "good"
    for other in (b"m" * 16, None):
        with pytest.raises(VerificationFailed) as caught:
            check_revocation(chain, parse_responses(answer(*pair, nonce=other) for pair in pairs), **ask)
        assert caught.value.code == "gpu-ocsp-nonce"


@pytest.mark.parametrize(
    "bad",
    [
        b"",
        b"\x30\x03\x0a\x01\x00",
        ocsp.OCSPResponseBuilder.build_unsuccessful(ocsp.OCSPResponseStatus.TRY_LATER).public_bytes(
            pki.serialization.Encoding.DER
        ),
        bytes(MAX_RESPONSE_BYTES + 1),
    ],
)
def test_what_is_no_response(bad: bytes) -> None:
    assert judged([*ALL, bad]) == (CheckStatus.FAIL, "gpu-ocsp-malformed")
    assert judged(ALL[:1] * (2 * MAX_RESPONSES + 1)) == (CheckStatus.FAIL, "gpu-ocsp-malformed")


def test_responses_in_the_trust_folder_count_and_are_read_anew(tmp_path: Path) -> None:
    trust = GpuTrust(FACTORY.roots, FACTORY.rims.roots, FACTORY.trust.rims, tmp_path / "ocsp")
    assert FACTORY.refusal(trust=trust, policy=REQUIRED) == "gpu-ocsp-absent"
    (tmp_path / "ocsp").mkdir()
    for number, der in enumerate(ALL):
        (tmp_path / "ocsp" / f"{number}.der").write_bytes(der)
    assert FACTORY.refusal(trust=trust, policy=REQUIRED) == "accepted"
    assert set(trust.ocsp_responses()) == set(ALL)


# ------------------------------------------------------------------ what NVIDIA answered


@needs_samples
def test_published_responses() -> None:
    stapled = [base64.b64decode(path.read_bytes()) for path in sorted((SAMPLES / H100 / "ocsp").glob("*.b64"))]
    assert len(stapled) == 7

    def at(text: str) -> Any:
        return examine_gpu_evidence(**h100(at=datetime.fromisoformat(text).timestamp(), stapled=stapled)).examination

    device_day, rim_day, today = at("2025-08-21T12:00:00Z"), at("2025-10-24T12:00:00Z"), at("2026-01-01T00:00:00Z")
    assert device_day.find("ocsp").status is CheckStatus.PASS
    assert device_day.find("driver-rim-ocsp").status is CheckStatus.EXPIRED
    assert [rim_day.find(f"{kind}-rim-ocsp").status for kind in ("driver", "vbios")] == [CheckStatus.PASS] * 2
    assert rim_day.find("ocsp").status is CheckStatus.EXPIRED
    assert {today.find(name).status for name in CHAINS} == {CheckStatus.EXPIRED}
