"""Stapled OCSP responses (RFC 6960) for NVIDIA's chains: whose they are, who signed them, what they say. Knows no network, no policy.

NVIDIA answers through delegated responders, ECDSA-SHA-384, with windows of one day (reference h100.md section 2). The device's leaf is not
asked for (there are millions), nor a root; a RIM's signer is.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import cache
from itertools import pairwise
from typing import Final

from cryptography import x509
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509 import ocsp
from cryptography.x509.oid import ExtendedKeyUsageOID, SignatureAlgorithmOID

from shared.attestation.p384_chain import Chain, public_key
from shared.attestation.results import Absent, Expired
from shared.attestation.x509_parts import BAD_CERTIFICATE, check_names, readable
from shared.errors import VerificationFailed

MAX_RESPONSES: Final = 32  # from one source; a verifier has two, its peer and its own folder
MAX_RESPONSE_BYTES: Final = 16 * 1024
MAX_RESPONDERS: Final = 4  # certificates of one response that may have signed it; each costs a signature to find out
HOLD: Final = x509.ReasonFlags.certificate_hold
_DIGESTS: Final = {"sha1": hashlib.sha1, "sha256": hashlib.sha256, "sha384": hashlib.sha384}


@dataclass(frozen=True)
class Revocation:
    """What responses say of a chain: "good", "revoked" or "unknown", and the reason of a revocation; None where nothing was asked."""

    status: str | None = None
    reason: str | None = None


class NotGood(VerificationFailed):
    """A believed response says that a certificate is not good; `revocation` is what it says."""

    def __init__(self, detail: str, revocation: Revocation, *, code: str, remedy: str | None = None) -> None:
        got = f"{revocation.status} ({revocation.reason})" if revocation.reason else revocation.status
        super().__init__(detail, code=code, expected="good", got=got, remedy=remedy)
        self.revocation = revocation


class NotStapled(Absent):
    """No response speaks of one of the chain's certificates."""


@dataclass(frozen=True)
class _Answer:
    """One certificate's status, the response that carries it, and who signed that."""

    response: ocsp.OCSPResponse
    single: ocsp.OCSPSingleResponse
    signer: x509.Certificate


def parse_responses(ders: Iterable[bytes]) -> tuple[ocsp.OCSPResponse, ...]:
    """Successful responses with a readable body. Raises: VerificationFailed `gpu-ocsp-malformed`."""
    responses: list[ocsp.OCSPResponse] = []
    for der in ders:
        if len(der) > MAX_RESPONSE_BYTES or len(responses) == 2 * MAX_RESPONSES:
            raise _malformed("too large or too many")
        try:
            response = ocsp.load_der_ocsp_response(der)
            _read_all(response)
        except BAD_CERTIFICATE:
            raise _malformed("not a successful DER response") from None
        responses.append(response)
    return tuple(responses)


def _read_all(response: ocsp.OCSPResponse) -> None:
    """Ask for every part that is read later: the library parses each only then, and only then finds it malformed. Raises: one of
    `BAD_CERTIFICATE`; VerificationFailed `gpu-ocsp-malformed`."""
    check_names(response.tbs_response_bytes)
    parts: list[object] = [readable(response.certificates), list(response.extensions), response.responder_name]
    parts += [
        response.responder_key_hash,
        response.signature,
        response.signature_algorithm_oid,
        response.produced_at_utc,
    ]
    for single in response.responses:
        parts += [single.certificate_status, single.revocation_reason, single.this_update_utc, single.next_update_utc]
    ids = [
        (single.hash_algorithm.name, single.issuer_name_hash, single.issuer_key_hash, single.serial_number)
        for single in response.responses
    ]
    if len(set(ids)) < len(ids):  # whoever says it twice contradicts himself, or keeps his readers busy
        raise _malformed("it speaks of one certificate twice")


def check_revocation(
    chain: Chain,
    responses: Sequence[ocsp.OCSPResponse],
    *,
    at: float,
    first: int,
    allow_hold: bool = False,
    nonce: bytes | None = None,
) -> Revocation:
    """Each certificate from `first` on, but the root, is good according to a response that its issuer answers for.

    Args:
        chain: ends in its root. first: 1 for a device's chain (its leaf is not asked for), 0 for a RIM's.
        allow_hold: whether `certificateHold` counts as good.
        nonce: what this verifier put into its requests; None: nothing was asked, responses are stapled.

    Raises:
        NotStapled: `gpu-ocsp-absent`. Expired: `gpu-ocsp-expired`: a response, or its responder's certificate, at another time.
        NotGood: `gpu-ocsp-revoked`, `gpu-ocsp-unknown`.
        VerificationFailed: `gpu-ocsp-responder`, `gpu-ocsp-nonce`, `gpu-ocsp-malformed`.
    """
    verdict = Revocation("good")
    postponed: VerificationFailed | None = None
    for certificate, issuer in pairwise(chain.certificates[first:]):
        try:
            answer = _answer(certificate, issuer, responses, chain, at)
            _check_nonce(answer.response, nonce)
            if _on_hold(answer.single, certificate, allow_hold=allow_hold):
                verdict = Revocation("revoked", HOLD.value)
            _check_responder_time(answer.signer, at)
            _check_time(answer.single, certificate, at)
        except (NotStapled, Expired) as error:
            postponed = postponed or error  # a revocation, also an old one, weighs more
    if postponed is not None:
        raise postponed
    return verdict


def _answer(
    certificate: x509.Certificate,
    issuer: x509.Certificate,
    responses: Sequence[ocsp.OCSPResponse],
    chain: Chain,
    at: float,
) -> _Answer:
    """The newest answer about this certificate that was out at `at` (CertID of RFC 6960 4.1.1: hashes of the issuer's name and key, and the
    serial). Who signed it had to be in time when answering: a key that is good no more, perhaps in other hands by now, hides nothing."""

    @cache  # once per response, however often it speaks of this certificate
    def signer_of(number: int) -> x509.Certificate | None:
        return _signer(responses[number], issuer, chain)

    found = [
        (number, single)
        for number, response in enumerate(responses)
        for single in response.responses
        if single.serial_number == certificate.serial_number and _is_issuer(single, issuer, chain)
    ]
    if not found:
        raise NotStapled(
            f"no OCSP response speaks of {_title(certificate)}", code="gpu-ocsp-absent",
            remedy="staple one, or put it into the trust folder's ocsp/",
        )  # fmt: skip
    signed: list[_Answer] = []
    newest = sorted(
        found, key=lambda one: (one[1].this_update_utc.timestamp() <= at, one[1].this_update_utc), reverse=True
    )
    for number, single in newest:
        if (signer := signer_of(number)) is not None:
            signed.append(_Answer(responses[number], single, signer))
            if signer.not_valid_before_utc <= single.this_update_utc <= signer.not_valid_after_utc:
                return signed[-1]
    if not signed:
        raise VerificationFailed(
            f"an OCSP response for {chain.name} is signed by nobody who may answer for the issuer",
            code="gpu-ocsp-responder", expected=f"{_title(issuer)}, or a responder that it certified",
        )  # fmt: skip
    return signed[0]


def _is_issuer(single: ocsp.OCSPSingleResponse, issuer: x509.Certificate, chain: Chain) -> bool:
    digest = _DIGESTS.get(single.hash_algorithm.name)
    if digest is None:
        return False
    hashes_of_issuer = digest(issuer.subject.public_bytes()), digest(_point(public_key(issuer, chain)))
    return (single.issuer_name_hash, single.issuer_key_hash) == tuple(made.digest() for made in hashes_of_issuer)


def _signer(response: ocsp.OCSPResponse, issuer: x509.Certificate, chain: Chain) -> x509.Certificate | None:
    """Who signed it: the issuer itself, or a responder that the issuer certified for this (RFC 6960 4.2.2.2); None: nobody of these."""
    if response.signature_algorithm_oid != SignatureAlgorithmOID.ECDSA_WITH_SHA384:
        return None
    carried = [known for known in response.certificates if _is_responder(response, known)][:MAX_RESPONDERS]
    for signer in (issuer, *(candidate for candidate in carried if _may_answer(candidate, issuer))):
        try:
            if _is_responder(response, signer):
                public_key(signer, chain).verify(
                    response.signature, response.tbs_response_bytes, ec.ECDSA(hashes.SHA384())
                )
                return signer
        except (InvalidSignature, VerificationFailed):
            continue
    return None


def _may_answer(candidate: x509.Certificate, issuer: x509.Certificate) -> bool:
    try:
        candidate.verify_directly_issued_by(issuer)
        purposes = candidate.extensions.get_extension_for_class(x509.ExtendedKeyUsage).value
        usage = candidate.extensions.get_extension_for_class(x509.KeyUsage).value
        judged = (x509.ExtendedKeyUsage, x509.KeyUsage, x509.BasicConstraints)
        unknown = any(known.critical and not isinstance(known.value, judged) for known in candidate.extensions)
        authority = any(
            isinstance(known.value, x509.BasicConstraints) and known.value.ca for known in candidate.extensions
        )
    except (InvalidSignature, x509.ExtensionNotFound, *BAD_CERTIFICATE):
        return False
    return ExtendedKeyUsageOID.OCSP_SIGNING in purposes and usage.digital_signature and not unknown and not authority


def _is_responder(response: ocsp.OCSPResponse, signer: x509.Certificate) -> bool:
    if response.responder_name is not None:
        return response.responder_name == signer.subject
    try:
        key = signer.public_key()
    except BAD_CERTIFICATE:
        return False
    return isinstance(key, ec.EllipticCurvePublicKey) and (
        response.responder_key_hash == hashlib.sha1(_point(key), usedforsecurity=False).digest()
    )


def _check_responder_time(signer: x509.Certificate, at: float) -> None:
    if not signer.not_valid_before_utc <= datetime.fromtimestamp(at, UTC) <= signer.not_valid_after_utc:
        raise Expired(
            "the certificate of an OCSP responder is not valid at this time", code="gpu-ocsp-expired",
            expected=f"{signer.not_valid_before_utc:%Y-%m-%d} to {signer.not_valid_after_utc:%Y-%m-%d}",
            got=f"{datetime.fromtimestamp(at, UTC):%Y-%m-%d %H:%M:%S}",
        )  # fmt: skip


def _check_time(single: ocsp.OCSPSingleResponse, certificate: x509.Certificate, at: float) -> None:
    start, end = single.this_update_utc, single.next_update_utc
    if end is None:
        raise _malformed("it states no end of its validity")
    if not start <= datetime.fromtimestamp(at, UTC) <= end:
        raise Expired(
            f"the OCSP response for {_title(certificate)} is of another time", code="gpu-ocsp-expired",
            expected=f"{start:%Y-%m-%d %H:%M:%S} to {end:%Y-%m-%d %H:%M:%S}",
            got=f"{datetime.fromtimestamp(at, UTC):%Y-%m-%d %H:%M:%S}", remedy="staple a fresh one",
        )  # fmt: skip


def _check_nonce(response: ocsp.OCSPResponse, nonce: bytes | None) -> None:
    if nonce is None:
        return
    got = [known.value.nonce for known in response.extensions if isinstance(known.value, x509.OCSPNonce)]
    if got != [nonce]:
        raise VerificationFailed(
            "an OCSP response answers another request", code="gpu-ocsp-nonce", expected=nonce.hex(),
            got=", ".join(value.hex() for value in got) or "no nonce",
        )  # fmt: skip


def _on_hold(single: ocsp.OCSPSingleResponse, certificate: x509.Certificate, *, allow_hold: bool) -> bool:
    """Whether the certificate is on hold, and that is allowed. Raises: VerificationFailed: it is not good."""
    status = single.certificate_status
    if status is ocsp.OCSPCertStatus.GOOD:
        return False
    if status is ocsp.OCSPCertStatus.UNKNOWN:
        raise NotGood(f"the issuer does not know {_title(certificate)}", Revocation("unknown"), code="gpu-ocsp-unknown")
    reason = single.revocation_reason
    if reason is HOLD and allow_hold:
        return True
    raise NotGood(
        f"{_title(certificate)} was revoked",
        Revocation("revoked", reason.value if reason else None),
        code="gpu-ocsp-revoked",
        remedy="a certificate on hold counts only where the policy says so" if reason is HOLD else None,
    )


def _point(key: ec.EllipticCurvePublicKey) -> bytes:
    return key.public_bytes(serialization.Encoding.X962, serialization.PublicFormat.UncompressedPoint)


def _title(certificate: x509.Certificate) -> str:
    return certificate.subject.rfc4514_string()[:120]


def _malformed(why: str) -> VerificationFailed:
    return VerificationFailed(f"an OCSP response is malformed: {why}", code="gpu-ocsp-malformed")
