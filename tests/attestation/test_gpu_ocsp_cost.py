"""What strangers' OCSP responses may cost: each response's signer is looked for once, whatever fills it. Knows no policy."""

from __future__ import annotations

import hashlib
from datetime import datetime

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.x509 import ocsp

from gpu_agent.platform import device_pki as pki
from shared.attestation import gpu_ocsp
from shared.attestation.gpu_chain import parse_chain
from shared.attestation.gpu_ocsp import MAX_RESPONDERS, check_revocation, parse_responses
from shared.attestation.p384_chain import public_key
from shared.errors import VerificationFailed
from tests.attestation.gpu_evidence_world import AT
from tests.attestation.test_gpu_ocsp import CHAINS, FACTORY

SUBJECT, ISSUER = CHAINS["ocsp"][:2]
OIDS = {"sha1": "06052b0e03021a", "sha256": "0609608648016503040201", "sha384": "0609608648016503040202"}
TIMES = [b"20250101000000Z", b"21000101000000Z"]


def tlv(tag: int, *parts: bytes) -> bytes:
    content = b"".join(parts)
    size = len(content)
    length = (size.bit_length() + 7) // 8
    head = bytes([size]) if size < 0x80 else bytes([0x80 | length]) + size.to_bytes(length, "big")
    return bytes([tag]) + head + content


def single(digest: str, *, good: bool = True) -> bytes:
    """One entry about `SUBJECT`. The library's builder puts no second one into a response."""
    chain = parse_chain(FACTORY.pem())
    made = (ISSUER.certificate.subject.public_bytes(), gpu_ocsp._point(public_key(ISSUER.certificate, chain)))
    serial = SUBJECT.certificate.serial_number
    number = serial.to_bytes(serial.bit_length() // 8 + 1, "big")
    hashed = [tlv(0x04, hashlib.new(digest, part).digest()) for part in made]
    name = tlv(0x30, tlv(0x30, bytes.fromhex(OIDS[digest]), b"\x05\0"), *hashed, tlv(0x02, number))
    status = b"\x80\0" if good else tlv(0xA1, tlv(0x18, TIMES[0]))
    return tlv(0x30, name, status, tlv(0x18, TIMES[0]), tlv(0xA0, tlv(0x18, TIMES[1])))


def lookalike() -> bytes:
    """A certificate under the issuer's own name, by a key of anybody's."""
    key, name = pki._new_key(), ISSUER.certificate.subject
    builder = x509.CertificateBuilder(name, name, key.public_key(), 5, pki._NOT_BEFORE, pki._NO_END)
    return builder.sign(key, hashes.SHA384()).public_bytes(pki.serialization.Encoding.DER)


def response(*entries: bytes, carried: tuple[bytes, ...] = ()) -> bytes:
    """In the issuer's name, signed by nobody."""
    by = tlv(0xA1, ISSUER.certificate.subject.public_bytes())
    data = tlv(0x30, by, tlv(0x18, TIMES[0]), tlv(0x30, *entries))
    signature = tlv(0x30, tlv(0x02, b"\1" * 47), tlv(0x02, b"\2" * 47))
    certificates = (tlv(0xA0, tlv(0x30, *carried)),) if carried else ()
    basic = tlv(
        0x30, data, tlv(0x30, bytes.fromhex("06082a8648ce3d040303")), tlv(0x03, b"\0", signature), *certificates
    )
    kind = bytes.fromhex("06092b0601050507300101")
    return tlv(0x30, b"\x0a\1\0", tlv(0xA0, tlv(0x30, kind, tlv(0x04, basic))))


def test_a_response_that_speaks_of_one_certificate_twice_is_refused() -> None:
    for entries in ([single("sha256")] * 2, [single("sha256"), single("sha256", good=False)]):
        with pytest.raises(VerificationFailed, match="twice") as caught:
            parse_responses([response(*entries)])
        assert caught.value.code == "gpu-ocsp-malformed"
    (read,) = parse_responses([response(*map(single, OIDS))])
    assert len(list(read.responses)) == len(OIDS)


def test_a_response_s_signer_is_looked_for_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every one that might have signed costs two signatures to find out, and anybody can put entries and certificates into a response."""
    responses = parse_responses([response(*map(single, OIDS), carried=(lookalike(),) * 4)] * 3)
    asked, judge = list[x509.Certificate](), gpu_ocsp._may_answer
    searched, search = list[ocsp.OCSPResponse](), gpu_ocsp._signer

    def may_answer(candidate: x509.Certificate, issuer: x509.Certificate) -> bool:
        asked.append(candidate)
        return judge(candidate, issuer)

    def signer(of: ocsp.OCSPResponse, *rest: object) -> x509.Certificate | None:
        searched.append(of)
        return search(of, *rest)  # type: ignore[arg-type]

    monkeypatch.setattr(gpu_ocsp, "_may_answer", may_answer)
    monkeypatch.setattr(gpu_ocsp, "_signer", signer)
    with pytest.raises(VerificationFailed) as caught:
        check_revocation(parse_chain(FACTORY.pem()), responses, at=AT, first=1)
    assert caught.value.code == "gpu-ocsp-responder"
    assert (len(searched), len(asked)) == (len(responses), len(responses) * MAX_RESPONDERS)


def test_the_entries_are_really_about_this_chain() -> None:
    (read,) = parse_responses([response(*map(single, OIDS))])
    chain = parse_chain(FACTORY.pem())
    assert all(gpu_ocsp._is_issuer(entry, ISSUER.certificate, chain) for entry in read.responses)
    assert {entry.this_update_utc for entry in read.responses} == {datetime.fromisoformat("2025-01-01T00:00:00+00:00")}
