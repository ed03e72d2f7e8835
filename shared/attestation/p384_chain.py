"""Certificate chains in NVIDIA's profile: leaf first, P-384 and ECDSA-SHA-384 throughout, up to a pinned root. Knows no device, no RIM.

Device chains, RIM signers and OCSP responders share it (reference h100.md section 2). Revocation is a check of its own.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import lru_cache
from itertools import pairwise

from cryptography import x509
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import SignatureAlgorithmOID

from shared.attestation.pck import certificate_fingerprint
from shared.attestation.results import Expired
from shared.attestation.x509_parts import BAD_CERTIFICATE
from shared.errors import VerificationFailed


@dataclass(frozen=True)
class Chain:
    """Certificates, leaf first, and what to call them: `name` for people ("the GPU's chain"), `code` for machines ("gpu-chain")."""

    certificates: tuple[x509.Certificate, ...]
    name: str
    code: str

    def broken(self, why: str) -> VerificationFailed:
        """The error of a chain that does not hold; `{name}` in `why` is replaced."""
        return VerificationFailed(why.format(name=self.name), code=f"{self.code}-broken")

    @property
    def expires(self) -> datetime:
        """When the first of its certificates ends."""
        return min(certificate.not_valid_after_utc for certificate in self.certificates)


def anchored(
    chain: Chain, roots: Mapping[str, x509.Certificate], *, root_may_be_absent: bool = False
) -> tuple[Chain, str]:
    """The chain with its pinned root as last certificate, and that root's fingerprint. Found by fingerprint, never by name.

    Args:
        roots: by SHA-256 fingerprint.
        root_may_be_absent: whether the chain may end one certificate earlier, at one that a pinned root's key signed.

    Raises:
        VerificationFailed: `…-root-unknown`.
    """
    last = chain.certificates[-1]
    fingerprint = certificate_fingerprint(last)
    if fingerprint in roots:
        return chain, fingerprint
    for candidate, root in roots.items() if root_may_be_absent else ():
        if _issued(last, root):
            return Chain((*chain.certificates, root), chain.name, chain.code), candidate
    raise VerificationFailed(
        f"{chain.name} does not end in a configured root",
        code=f"{chain.code.removesuffix('-chain')}-root-unknown",
        expected=", ".join(sorted(roots)) or "no root is configured",
        got=fingerprint,
        remedy="check that the evidence comes from the installation or maker whose root is in the trust folder",
    )


# Which bytes link to which does not change with time, so it is computed once per chain; time is judged at every use.
@lru_cache(maxsize=64)
def check_links(chain: Chain) -> None:
    """Every certificate P-384, ECDSA-SHA-384, issued by the next one, which may issue; the leaf may only sign.

    Raises:
        VerificationFailed: `…-broken`.
    """
    certificates = chain.certificates
    for certificate in certificates:
        public_key(certificate, chain)
        if certificate.signature_algorithm_oid != SignatureAlgorithmOID.ECDSA_WITH_SHA384:
            raise chain.broken("a signature in {name} is not ECDSA-SHA-384")
    for certificate, issuer in pairwise(certificates):
        if not _may_issue(issuer):
            raise chain.broken("an issuer in {name} is not a certificate authority")
        if not _issued(certificate, issuer):
            raise chain.broken("a certificate of {name} was not issued by the next one")
    if not _may_only_sign(certificates[0]):
        raise chain.broken("the leaf of {name} is not a signing key, or is an authority, or serves another purpose")
    for depth, certificate in enumerate(certificates):
        _check_extensions(certificate, chain, issuers_below=depth - 1)


def check_validity(chain: Chain, at: float) -> None:
    """Every certificate valid at `at` (seconds since 1970). Raises: Expired `…-expired`: genuine perhaps, but not at this time."""
    moment = datetime.fromtimestamp(at, UTC)
    for certificate in chain.certificates:
        start, end = certificate.not_valid_before_utc, certificate.not_valid_after_utc
        if not start <= moment <= end:
            raise Expired(
                f"a certificate of {chain.name} is {'not valid yet' if moment < start else 'no longer valid'}",
                code=f"{chain.code}-expired",
                expected=f"{start:%Y-%m-%d} to {end:%Y-%m-%d}",
                got=f"{moment:%Y-%m-%d %H:%M:%S}",
                remedy="verify at the time when the evidence was made, or get it issued anew",
            )


def public_key(certificate: x509.Certificate, chain: Chain) -> ec.EllipticCurvePublicKey:
    """The P-384 key of a certificate of `chain`. Raises: VerificationFailed `…-broken`."""
    try:
        key = certificate.public_key()
    except BAD_CERTIFICATE:
        raise chain.broken("a key in {name} cannot be read") from None
    if not isinstance(key, ec.EllipticCurvePublicKey) or not isinstance(key.curve, ec.SECP384R1):
        raise chain.broken("a key in {name} is not P-384")
    return key


def _issued(certificate: x509.Certificate, issuer: x509.Certificate) -> bool:
    try:
        certificate.verify_directly_issued_by(issuer)
    except (InvalidSignature, *BAD_CERTIFICATE):
        return False
    return True


def _check_extensions(certificate: x509.Certificate, chain: Chain, *, issuers_below: int) -> None:
    """No critical extension that is not judged here (RFC 5280 4.2), no path longer than allowed (RFC 5280 6.1.4 (m))."""
    for extension in certificate.extensions:
        if isinstance(extension.value, x509.BasicConstraints):
            limit = extension.value.path_length
            if limit is not None and limit < issuers_below:
                raise chain.broken("an issuer in {name} allows fewer authorities below it")
        elif extension.critical and not isinstance(extension.value, x509.KeyUsage):
            raise chain.broken(f"{{name}} has the critical extension {extension.oid.dotted_string}, which is unknown")


def _may_issue(certificate: x509.Certificate) -> bool:
    basic, usage, _ = _powers(certificate)
    return basic is not None and basic.ca and usage is not None and usage.key_cert_sign


def _may_only_sign(certificate: x509.Certificate) -> bool:
    basic, usage, extended = _powers(certificate)
    authority = basic is not None and basic.ca
    # An extended key usage limits a key to other ends: OCSP responders hang under the same authorities.
    return not authority and not extended and usage is not None and usage.digital_signature and not usage.key_cert_sign


def _powers(certificate: x509.Certificate) -> tuple[x509.BasicConstraints | None, x509.KeyUsage | None, bool]:
    """Basic constraints, key usage, and whether there is an extended key usage."""
    basic: x509.BasicConstraints | None = None
    usage: x509.KeyUsage | None = None
    extended = False
    for extension in certificate.extensions:
        if isinstance(extension.value, x509.BasicConstraints):
            basic = extension.value
        elif isinstance(extension.value, x509.KeyUsage):
            usage = extension.value
        elif isinstance(extension.value, x509.ExtendedKeyUsage):
            extended = True
    return basic, usage, extended
