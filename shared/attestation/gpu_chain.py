"""The GPU's certificate chain: attestation leaf, device identity, two intermediates, pinned root. Knows no report and no policy.

Published profile (reference h100.md section 2): five certificates, leaf first, all P-384 and ECDSA-SHA-384. The root is found by
fingerprint, never by name: two NVIDIA roots share one name. Revocation (OCSP) is a check of its own.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Final

from cryptography import x509
from cryptography.exceptions import InvalidSignature, UnsupportedAlgorithm
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import SignatureAlgorithmOID

from shared.attestation.pck import certificate_fingerprint
from shared.canonical import sha256
from shared.errors import VerificationFailed

DEVICE_INFO: Final = x509.ObjectIdentifier("1.3.6.1.4.1.412.274.1")  # DMTF: "maker:product:serial" in the leaf's SAN
DICE_FWID: Final = x509.ObjectIdentifier("2.23.133.5.4.1")  # TCG CompositeDeviceID: DeviceID key and FWID (Hopper)
DICE_TCB_INFO: Final = x509.ObjectIdentifier("2.23.133.5.4.1.1")  # TCG TcbInfo: two FWIDs (Blackwell)
GPU_IDENTITY: Final = 0x41  # first byte of the identity certificate's serial; NVSwitch LS10 has 0x50
CHAIN_LENGTH: Final = 5
MAX_CHAIN_BYTES: Final = 0x1400  # NVML's attestation certificate chain buffer
_FWID_HEAD: Final = bytes.fromhex("303d0609608648016503040202 0430")  # SEQUENCE { OID sha384, OCTET STRING (48) }
_FWID_BYTES: Final = 48
# What `cryptography` raises on hostile certificates; its own exceptions are no family.
_BAD = (ValueError, TypeError, UnsupportedAlgorithm, x509.InvalidVersion, x509.DuplicateExtension)
_TCB_INFO = re.compile(
    rb"\x30\x81\xb1\x80\x06NVIDIA\x81\x0d[ -~]{13}\x82\x02[ -~]{2}\x83\x01.\x84\x01.\x85\x01.\xa6\x7e"
    + re.escape(_FWID_HEAD) + rb"(.{48})" + re.escape(_FWID_HEAD) + rb".{48}\x87\x05.{5}\x88\x01.\x89\x01.",
    re.DOTALL,
)  # fmt: skip


@dataclass(frozen=True)
class DeviceIdentity:
    """What a verified chain says: who signs (leaf), which device (`pdi`, 8 bytes hex), what firmware (`fwid`, 48 bytes)."""

    leaf: ec.EllipticCurvePublicKey
    root_fingerprint: str
    pdi: str
    product: str
    fwid: bytes
    digest: str


def dice_extension(device_id: ec.EllipticCurvePublicKey, fwid: bytes) -> bytes:
    """DER (189 bytes) of SEQUENCE { INTEGER 1, SubjectPublicKeyInfo of DeviceID, SEQUENCE { sha384, FWID } }."""
    info = device_id.public_bytes(serialization.Encoding.DER, serialization.PublicFormat.SubjectPublicKeyInfo)
    content = b"\x02\x01\x01" + info + _FWID_HEAD + fwid
    return b"\x30\x81" + bytes([len(content)]) + content


def parse_chain(pem: str) -> list[x509.Certificate]:
    """Five certificates, leaf first. Raises: VerificationFailed `gpu-chain-malformed`."""
    data = pem.encode("utf-8", "replace").rstrip(b"\0")
    if len(data) > MAX_CHAIN_BYTES:
        raise _malformed(f"the GPU's chain has {len(data)} bytes")
    try:
        chain = x509.load_pem_x509_certificates(data)
    except _BAD:
        raise _malformed("the GPU's chain is not PEM certificates") from None
    if len(chain) != CHAIN_LENGTH:
        raise _malformed(f"the GPU's chain has {len(chain)} certificates, not {CHAIN_LENGTH}")
    return chain


def public_key(certificate: x509.Certificate) -> ec.EllipticCurvePublicKey:
    """The P-384 key of a certificate. Raises: VerificationFailed `gpu-chain-broken`."""
    try:
        key = certificate.public_key()
    except _BAD:
        raise _broken("a key in the GPU's chain cannot be read") from None
    if not isinstance(key, ec.EllipticCurvePublicKey) or not isinstance(key.curve, ec.SECP384R1):
        raise _broken("a key in the GPU's chain is not P-384")
    return key


def chain_digest(chain: list[x509.Certificate]) -> str:
    """SHA-256 over the DER certificates, leaf first; hex."""
    return sha256(b"".join(link.public_bytes(serialization.Encoding.DER) for link in chain)).hex()


def verify_chain(pem: str, roots: Mapping[str, x509.Certificate], at: float) -> DeviceIdentity:
    """Walk leaf → identity → provisioner → product CA → one of `roots` (by fingerprint), valid at `at` (seconds since 1970).

    Raises:
        VerificationFailed: `gpu-chain-malformed`, `gpu-root-unknown`, `gpu-chain-broken`, `gpu-chain-expired`,
            `gpu-device-type`, `gpu-device-id`.
    """
    chain = parse_chain(pem)
    fingerprint = certificate_fingerprint(chain[-1])
    if fingerprint not in roots:
        raise VerificationFailed(
            "the GPU's certificates do not end in a configured root",
            code="gpu-root-unknown",
            expected=", ".join(sorted(roots)) or "no root is configured",
            got=fingerprint,
            remedy="check that the evidence comes from the installation or maker whose root is in the trust folder",
        )
    chain[-1] = roots[fingerprint]
    _check_links(chain)
    _check_validity(chain, at)
    product, pdi = identity_of(chain)
    fwid = verify_dice(chain[0], public_key(chain[1]))
    return DeviceIdentity(public_key(chain[0]), fingerprint, pdi, product, fwid, chain_digest(chain))


def _check_links(chain: list[x509.Certificate]) -> None:
    for certificate in chain:
        public_key(certificate)
        if certificate.signature_algorithm_oid != SignatureAlgorithmOID.ECDSA_WITH_SHA384:
            raise _broken("a signature in the GPU's chain is not ECDSA-SHA-384")
    for certificate, issuer in zip(chain, [*chain[1:], chain[-1]], strict=True):
        if not _may_issue(issuer):
            raise _broken("an issuer in the GPU's chain is not a certificate authority")
        try:
            certificate.verify_directly_issued_by(issuer)
        except (InvalidSignature, *_BAD):
            raise _broken("a certificate of the GPU's chain was not issued by the next one") from None
    if any(not _may_issue(authority) for authority in chain[1:]) or not _may_only_sign(chain[0]):
        raise _broken("the GPU's leaf is not a signing key, or is an authority")
    for depth, certificate in enumerate(chain):
        _check_extensions(certificate, issuers_below=depth - 1)


def _check_extensions(certificate: x509.Certificate, *, issuers_below: int) -> None:
    """No critical extension that is not judged here (RFC 5280 4.2), no path longer than allowed (RFC 5280 6.1.4 (m))."""
    for extension in _extensions(certificate):
        if isinstance(extension.value, x509.BasicConstraints):
            limit = extension.value.path_length
            if limit is not None and limit < issuers_below:
                raise _broken("an issuer in the GPU's chain allows fewer authorities below it")
        elif extension.critical and not isinstance(extension.value, x509.KeyUsage):
            raise _broken(f"the GPU's chain has the critical extension {extension.oid.dotted_string}, which is unknown")


def _may_issue(certificate: x509.Certificate) -> bool:
    basic, usage = _basic_and_usage(certificate)
    return basic is not None and basic.ca and usage is not None and usage.key_cert_sign


def _may_only_sign(certificate: x509.Certificate) -> bool:
    basic, usage = _basic_and_usage(certificate)
    authority = basic is not None and basic.ca
    return not authority and usage is not None and usage.digital_signature and not usage.key_cert_sign


def _basic_and_usage(certificate: x509.Certificate) -> tuple[x509.BasicConstraints | None, x509.KeyUsage | None]:
    basic: x509.BasicConstraints | None = None
    usage: x509.KeyUsage | None = None
    for extension in _extensions(certificate):
        if isinstance(extension.value, x509.BasicConstraints):
            basic = extension.value
        elif isinstance(extension.value, x509.KeyUsage):
            usage = extension.value
    return basic, usage


def _extensions(certificate: x509.Certificate) -> x509.Extensions:
    try:
        return certificate.extensions
    except _BAD:
        raise _malformed("a certificate of the GPU's chain has malformed extensions") from None


def _check_validity(chain: list[x509.Certificate], at: float) -> None:
    moment = datetime.fromtimestamp(at, UTC)
    for certificate in chain:
        if not certificate.not_valid_before_utc <= moment <= certificate.not_valid_after_utc:
            raise VerificationFailed(
                "a certificate of the GPU's chain is not valid now",
                code="gpu-chain-expired",
                expected=f"{certificate.not_valid_before_utc:%Y-%m-%d} to {certificate.not_valid_after_utc:%Y-%m-%d}",
                got=f"{moment:%Y-%m-%d %H:%M:%S}",
            )


def identity_of(chain: list[x509.Certificate]) -> tuple[str, str]:
    """(product, PDI in hex). Raises: VerificationFailed `gpu-device-type`.

    A switch hangs under the same root, so the root alone does not make a GPU.
    """
    serial = chain[1].serial_number  # X.509 serials may be negative: compared as a number, not as bytes
    kind, pdi = divmod(serial, 1 << 64)
    info = _device_info(chain[0]).split(":")
    if kind != GPU_IDENTITY or len(info) != 3 or not info[1].startswith("G"):
        raise VerificationFailed(
            "the certified device is not a GPU", code="gpu-device-type", expected="identity serial 41…, maker:G…:serial",
            got=f"{serial:x}, {':'.join(info)}"[:120],
        )  # fmt: skip
    return info[1], f"{pdi:016x}"


def _device_info(leaf: x509.Certificate) -> str:
    for extension in _extensions(leaf):
        if isinstance(extension.value, x509.SubjectAlternativeName):
            for name in extension.value.get_values_for_type(x509.OtherName):
                if name.type_id == DEVICE_INFO and name.value[:1] == b"\x0c" and len(name.value) == 2 + name.value[1]:
                    return name.value[2:].decode("utf-8", "replace")
    return ""


def verify_dice(leaf: x509.Certificate, identity: ec.EllipticCurvePublicKey) -> bytes:
    """FWID (48 bytes) certified by the leaf; Hopper also names the DeviceID key, which must be the identity certificate's.

    Raises:
        VerificationFailed: `gpu-device-id`.
    """
    for extension in _extensions(leaf):
        if not isinstance(extension.value, x509.UnrecognizedExtension):
            continue
        der = extension.value.value
        if extension.oid == DICE_FWID:
            if der != dice_extension(identity, der[-_FWID_BYTES:]):
                raise _not_dice("the leaf's DeviceID is not the key of the identity certificate")
            return der[-_FWID_BYTES:]
        if extension.oid == DICE_TCB_INFO:
            match = _TCB_INFO.fullmatch(der)
            if match is None:
                raise _not_dice("the leaf's TcbInfo is not as published")
            return match.group(1)
    raise _not_dice("the leaf certifies no firmware id")


def _not_dice(why: str) -> VerificationFailed:
    return VerificationFailed(why, code="gpu-device-id")


def _malformed(why: str) -> VerificationFailed:
    return VerificationFailed(why, code="gpu-chain-malformed")


def _broken(why: str) -> VerificationFailed:
    return VerificationFailed(why, code="gpu-chain-broken")
