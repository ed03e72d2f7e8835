"""The PCK certificate chain of a quote: leaf, platform CA, pinned root; and what the leaf says of the machine. Knows no policy.

Source: Intel SGX PCK Certificate and CRL Profile Specification 1.5. Revocation belongs to the collateral check, not here.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property

from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec

from shared.attestation.certificates import (
    authority_name,
    check_issued,
    check_signs,
    load_chain,
    p256_key,
    validity,
)
from shared.attestation.x509_parts import BAD_CERTIFICATE
from shared.errors import VerificationFailed

SGX_EXTENSION = x509.ObjectIdentifier("1.2.840.113741.1.13.1")
SGX_PREFIX = bytes.fromhex("2a864886f84d010d01")  # DER contents of that OID; more arcs name each entry
DER_BOOLEAN, DER_INTEGER, DER_OCTETS, DER_OID, DER_ENUMERATED, DER_SEQUENCE = 0x01, 0x02, 0x04, 0x06, 0x0A, 0x30
COMPONENTS = 16
CHAIN_LENGTH = 3
MALFORMED, BROKEN = "quote-chain-malformed", "quote-chain-broken"
WRONG_ROOT = "the evidence is not from the configured root"


@dataclass(frozen=True)
class PlatformTcb:
    """What the leaf says of the platform's patch level: 16 component SVNs and the PCE's."""

    components: tuple[int, ...]
    pce_svn: int
    cpu_svn: bytes


@dataclass(frozen=True)
class PckIdentity:
    """What a chain says: the leaf's key, the pinned root it ends in, and the machine. Ids are hex.

    `platform_id` is the platform instance id, or the PPID where there is none. `dynamic_platform`, `cached_keys`, `smt`: None where the
    certificate says nothing (a processor CA's). `sgx_type`: 0 standard, 1 scalable, 2 scalable with integrity.
    """

    key: ec.EllipticCurvePublicKey
    leaf: x509.Certificate
    authority: x509.Certificate
    root: x509.Certificate
    root_fingerprint: str
    ppid: str
    fmspc: str
    pce_id: str
    platform_id: str
    tcb: PlatformTcb
    sgx_type: int
    dynamic_platform: bool | None
    cached_keys: bool | None
    smt: bool | None

    @cached_property
    def authority_name(self) -> str:
        """Who issued the leaf."""
        return authority_name(self.authority)

    def check_time(self, at: float) -> None:
        """Leaf, CA and root are valid at `at`, seconds since 1970. Raises: Expired `quote-chain-expired`."""
        for name, certificate in (("PCK leaf", self.leaf), ("platform CA", self.authority), ("root", self.root)):
            validity(name, certificate).check(at, "quote-chain-expired")


def certificate_fingerprint(certificate: x509.Certificate) -> str:
    """SHA-256 over DER, hex."""
    return certificate.fingerprint(hashes.SHA256()).hex()


def read_pck_chain(pem: bytes, roots: Mapping[str, x509.Certificate]) -> PckIdentity:
    """Walk leaf → platform CA → one of `roots` (by fingerprint). Time is judged apart, by `PckIdentity.check_time`.

    Raises:
        VerificationFailed: `quote-chain-malformed`, `quote-root-unknown`, `quote-chain-broken`.
    """
    leaf, authority, offered_root = load_chain(pem, CHAIN_LENGTH, "PCK certificate chain", MALFORMED)
    fingerprint = certificate_fingerprint(offered_root)
    root = roots.get(fingerprint)
    if root is None:
        raise VerificationFailed(
            f"{WRONG_ROOT}: its certificates end in another",
            code="quote-root-unknown",
            expected=", ".join(sorted(roots)) or "no root is configured",
            got=fingerprint,
            remedy="check that the evidence comes from the installation or maker whose root is in the trust folder",
        )
    check_issued("platform CA", authority, root, BROKEN)
    check_issued("PCK leaf", leaf, authority, BROKEN)
    check_signs("PCK leaf", leaf, BROKEN)
    return _identity(leaf, authority, root, fingerprint)


def _identity(leaf: x509.Certificate, authority: x509.Certificate, root: x509.Certificate, name: str) -> PckIdentity:
    entries = _sgx_extension(leaf)
    instance = entries.get((6,), b"")
    flags = [_flag(entries, arc) for arc in (1, 2, 3)]
    return PckIdentity(
        key=p256_key("PCK leaf", leaf, BROKEN),
        leaf=leaf,
        authority=authority,
        root=root,
        root_fingerprint=name,
        ppid=_octets(entries, (1,), 16).hex(),
        fmspc=_octets(entries, (4,), 6).hex(),
        pce_id=_octets(entries, (3,), 2).hex(),
        platform_id=(instance or entries[(1,)]).hex(),
        tcb=PlatformTcb(
            tuple(_number(entries, (2, arc), 255) for arc in range(1, COMPONENTS + 1)),
            _number(entries, (2, 17), 65535),
            _octets(entries, (2, 18), 16),
        ),
        sgx_type=_number(entries, (5,), 255),
        dynamic_platform=flags[0],
        cached_keys=flags[1],
        smt=flags[2],
    )


def _sgx_extension(leaf: x509.Certificate) -> dict[tuple[int, ...], bytes]:
    try:
        extension = leaf.extensions.get_extension_for_oid(SGX_EXTENSION).value
    except (x509.ExtensionNotFound, *BAD_CERTIFICATE):
        raise _malformed("the PCK leaf has no SGX extension") from None
    if not isinstance(extension, x509.UnrecognizedExtension):
        raise _malformed("the SGX extension was read as something else")
    return sgx_entries(extension.value)


def sgx_entries(der: bytes) -> dict[tuple[int, ...], bytes]:
    """Contents of every entry of the SGX extension by the arcs of its OID below 1.2.840.113741.1.13.1.

    (1,) PPID, (2, 1) … (2, 16) component SVNs, (2, 17) PCE SVN, (2, 18) CPU SVN, (3,) PCE id, (4,) FMSPC, (5,) type,
    (6,) platform instance id, (7, 1) dynamic platform, (7, 2) cached keys, (7, 3) SMT.

    Raises:
        VerificationFailed: `quote-chain-malformed`.
    """
    items = _elements(der)
    if len(items) != 1 or items[0][0] != DER_SEQUENCE:
        raise _malformed("the SGX extension is not one sequence")
    return _pairs(items[0][1], ())


_TAGS: dict[tuple[int, ...], int] = {
    **{(arc,): DER_OCTETS for arc in (1, 3, 4, 6)},
    **{(2, arc): DER_INTEGER for arc in range(1, COMPONENTS + 2)},
    **{(7, arc): DER_BOOLEAN for arc in (1, 2, 3)},
    **{(arc,): DER_SEQUENCE for arc in (2, 7)},
    (2, 18): DER_OCTETS,
    (5,): DER_ENUMERATED,
}


def _pairs(data: bytes, above: tuple[int, ...]) -> dict[tuple[int, ...], bytes]:
    entries: dict[tuple[int, ...], bytes] = {}
    for tag, content in _elements(data):
        parts = _elements(content)
        if tag != DER_SEQUENCE or len(parts) != 2 or parts[0][0] != DER_OID:
            raise _malformed("an entry of the SGX extension is not a pair")
        name, (kind, value) = parts[0][1], parts[1]
        arcs = tuple(name[len(SGX_PREFIX) :])
        if not name.startswith(SGX_PREFIX) or arcs[:-1] != above or arcs not in _TAGS:
            continue  # a later profile may add entries; what is needed is asked for by name
        if arcs in entries or kind != _TAGS[arcs]:
            raise _malformed(f"entry {arcs} of the SGX extension is repeated or of type {kind:#x}")
        entries[arcs] = value
        if kind == DER_SEQUENCE:
            entries |= _pairs(value, arcs)
    return entries


def _elements(data: bytes) -> list[tuple[int, bytes]]:
    """(tag, contents) of consecutive DER elements with single-byte tags and definite lengths (X.690 8.1).

    Raises:
        VerificationFailed: `quote-chain-malformed`.
    """
    found, at, end = [], 0, len(data)
    while at < end:
        tag, start, length = data[at], at + 2, data[at + 1] if at + 1 < end else 0xFF
        if length >= 0x80:
            count = length & 0x7F
            if not 1 <= count <= 2 or start + count > end:
                raise _malformed("the SGX extension has a bad DER length")
            length, start = int.from_bytes(data[start : start + count], "big"), start + count
        at = start + length
        if at > end:
            raise _malformed("the SGX extension is truncated")
        found.append((tag, data[start:at]))
    return found


def _octets(entries: Mapping[tuple[int, ...], bytes], arcs: tuple[int, ...], size: int) -> bytes:
    value = entries.get(arcs, b"")
    if len(value) != size:
        raise _malformed(f"entry {arcs} of the SGX extension has {len(value)} bytes, not {size}")
    return value


def _number(entries: Mapping[tuple[int, ...], bytes], arcs: tuple[int, ...], most: int) -> int:
    value = entries.get(arcs, b"")
    number = int.from_bytes(value, "big", signed=True) if 1 <= len(value) <= 3 else -1
    if not 0 <= number <= most:
        raise _malformed(f"entry {arcs} of the SGX extension is not a number up to {most}")
    return number


def _flag(entries: Mapping[tuple[int, ...], bytes], arc: int) -> bool | None:
    value = entries.get((7, arc))
    if value not in (None, b"\x00", b"\xff"):
        raise _malformed(f"entry {(7, arc)} of the SGX extension is not a DER boolean")
    return None if value is None else value == b"\xff"


def _malformed(why: str) -> VerificationFailed:
    return VerificationFailed(why, code=MALFORMED)
