"""The PCK certificate chain of a quote: leaf, platform CA, pinned root; and what the leaf says of the machine. Knows no policy.

Source: Intel SGX PCK Certificate and CRL Profile Specification 1.5. Revocation belongs to the collateral check, not here.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime

from cryptography import x509
from cryptography.exceptions import InvalidSignature, UnsupportedAlgorithm
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec

from shared.errors import VerificationFailed

SGX_EXTENSION = x509.ObjectIdentifier("1.2.840.113741.1.13.1")
SGX_PREFIX = bytes.fromhex("2a864886f84d010d01")  # DER contents of that OID; one more byte names each entry
PPID, PCE_ID, FMSPC, PLATFORM_INSTANCE = 1, 3, 4, 6
CHAIN_LENGTH = 3
MAX_CHAIN_BYTES = 16 * 1024
# What `cryptography` raises on hostile certificates; its own exceptions are no family.
_BAD = (ValueError, TypeError, UnsupportedAlgorithm, x509.InvalidVersion, x509.DuplicateExtension)
DER_OID, DER_OCTETS, DER_SEQUENCE = 0x06, 0x04, 0x30


@dataclass(frozen=True)
class PckIdentity:
    """What a verified chain says: the leaf's key, the pinned root that it ends in, and the machine (hex)."""

    key: ec.EllipticCurvePublicKey
    root_fingerprint: str
    ppid: str
    fmspc: str
    pce_id: str
    platform_id: str


def certificate_fingerprint(certificate: x509.Certificate) -> str:
    """SHA-256 over DER, hex."""
    return certificate.fingerprint(hashes.SHA256()).hex()


def verify_pck_chain(pem: bytes, roots: Mapping[str, x509.Certificate], at: float) -> PckIdentity:
    """Walk leaf → platform CA → one of `roots` (by fingerprint), everything valid at `at` (seconds since 1970).

    Raises:
        VerificationFailed: `quote-chain-malformed`, `quote-root-unknown`, `quote-chain-expired`, `quote-chain-broken`.
    """
    leaf, authority, offered_root = _load(pem)
    fingerprint = certificate_fingerprint(offered_root)
    root = roots.get(fingerprint)
    if root is None:
        raise VerificationFailed(
            "the quote's certificates do not end in a configured root",
            code="quote-root-unknown",
            expected=", ".join(sorted(roots)) or "no root is configured",
            got=fingerprint,
            remedy="check that the evidence comes from the installation or maker whose root is in the trust folder",
        )
    _check_issued("platform CA", authority, root, issuer_is_root=True)
    _check_issued("PCK leaf", leaf, authority, issuer_is_root=False)
    if _is_authority(leaf):
        raise _broken("the PCK leaf is a certificate authority")
    for name, certificate in (("PCK leaf", leaf), ("platform CA", authority), ("root", root)):
        _check_validity(name, certificate, at)
    try:
        key = leaf.public_key()
    except _BAD:
        raise _broken("the PCK key cannot be read") from None
    if not isinstance(key, ec.EllipticCurvePublicKey) or not isinstance(key.curve, ec.SECP256R1):
        raise _broken("the PCK key is not P-256")
    return _identity(leaf, key, fingerprint)


def _load(pem: bytes) -> list[x509.Certificate]:
    if len(pem) > MAX_CHAIN_BYTES:
        raise _malformed(f"the chain has {len(pem)} bytes")
    try:
        chain = x509.load_pem_x509_certificates(pem.rstrip(b"\0"))
    except _BAD:
        raise _malformed("the chain is not PEM certificates") from None
    if len(chain) != CHAIN_LENGTH:
        raise _malformed(f"the chain has {len(chain)} certificates, not leaf, platform CA and root")
    return chain


def _check_validity(name: str, certificate: x509.Certificate, at: float) -> None:
    moment = datetime.fromtimestamp(at, UTC)
    if not certificate.not_valid_before_utc <= moment <= certificate.not_valid_after_utc:
        raise VerificationFailed(
            f"the {name} is not valid now",
            code="quote-chain-expired",
            expected=f"{certificate.not_valid_before_utc:%Y-%m-%d} to {certificate.not_valid_after_utc:%Y-%m-%d}",
            got=f"{moment:%Y-%m-%d %H:%M:%S}",
        )


def _check_issued(name: str, certificate: x509.Certificate, issuer: x509.Certificate, *, issuer_is_root: bool) -> None:
    if not _is_authority(issuer):
        raise _broken(f"the issuer of the {name} is not a certificate authority")
    if issuer_is_root and not _is_authority(certificate):
        raise _broken(f"the {name} is not a certificate authority")
    try:
        certificate.verify_directly_issued_by(issuer)
    except (InvalidSignature, *_BAD):
        raise _broken(f"the {name} was not issued by the next certificate") from None


def _is_authority(certificate: x509.Certificate) -> bool:
    try:
        basic = certificate.extensions.get_extension_for_class(x509.BasicConstraints).value
        usage = certificate.extensions.get_extension_for_class(x509.KeyUsage).value
    except (x509.ExtensionNotFound, *_BAD):
        return False
    return basic.ca and usage.key_cert_sign


def _identity(leaf: x509.Certificate, key: ec.EllipticCurvePublicKey, root_fingerprint: str) -> PckIdentity:
    try:
        extension = leaf.extensions.get_extension_for_oid(SGX_EXTENSION).value
    except (x509.ExtensionNotFound, *_BAD):
        raise _malformed("the PCK leaf has no SGX extension") from None
    if not isinstance(extension, x509.UnrecognizedExtension):
        raise _malformed("the SGX extension was read as something else")
    entries = sgx_entries(extension.value)
    sizes = {PPID: 16, PCE_ID: 2, FMSPC: 6}
    if any(len(entries.get(entry, b"")) != size for entry, size in sizes.items()):
        raise _malformed("the SGX extension lacks PPID, PCE id or FMSPC")
    ppid, instance = entries[PPID].hex(), entries.get(PLATFORM_INSTANCE, b"").hex()
    return PckIdentity(key, root_fingerprint, ppid, entries[FMSPC].hex(), entries[PCE_ID].hex(), instance or ppid)


def sgx_entries(der: bytes) -> dict[int, bytes]:
    """Octet-string entries of the SGX extension by the last arc of their OID (1 PPID, 3 PCE id, 4 FMSPC, 6 instance).

    Raises:
        VerificationFailed: `quote-chain-malformed`.
    """
    items = list(_elements(der))
    if len(items) != 1 or items[0][0] != DER_SEQUENCE:
        raise _malformed("the SGX extension is not one sequence")
    entries: dict[int, bytes] = {}
    for tag, content in _elements(items[0][1]):
        parts = list(_elements(content))
        if tag != DER_SEQUENCE or len(parts) != 2 or parts[0][0] != DER_OID:
            raise _malformed("an entry of the SGX extension is not a pair")
        name, (kind, value) = parts[0][1], parts[1]
        if kind == DER_OCTETS and name[:-1] == SGX_PREFIX:
            if name[-1] in entries:
                raise _malformed("the SGX extension repeats an entry")
            entries[name[-1]] = value
    return entries


def _elements(data: bytes) -> Iterator[tuple[int, bytes]]:
    """(tag, contents) of consecutive DER elements with single-byte tags and definite lengths (X.690 8.1)."""
    at = 0
    while at < len(data):
        tag, start, length = data[at], at + 2, data[at + 1] if at + 1 < len(data) else 0xFF
        if length >= 0x80:
            count = length & 0x7F
            if not 1 <= count <= 2 or start + count > len(data):
                raise _malformed("the SGX extension has a bad DER length")
            length, start = int.from_bytes(data[start : start + count], "big"), start + count
        if start + length > len(data):
            raise _malformed("the SGX extension is truncated")
        yield tag, data[start : start + length]
        at = start + length


def _malformed(why: str) -> VerificationFailed:
    return VerificationFailed(why, code="quote-chain-malformed")


def _broken(why: str) -> VerificationFailed:
    return VerificationFailed(why, code="quote-chain-broken")
