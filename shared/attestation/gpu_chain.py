"""The GPU's certificate chain: attestation leaf, device identity, two intermediates, root. Knows no report and no policy.

Published profile (reference h100.md section 2): five certificates, leaf first. How they must hang together is `p384_chain`'s; here is
what they say of a device. The root's name says nothing: two NVIDIA roots share one.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import lru_cache
from typing import Final

from cryptography import x509
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from shared.attestation import p384_chain
from shared.attestation.p384_chain import Chain
from shared.attestation.x509_parts import BAD_CERTIFICATE, readable
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
_PRODUCT = re.compile(r"G[A-Z][0-9]{3}")
_PEM = re.compile(rb"(?:\s*-----BEGIN CERTIFICATE-----[A-Za-z0-9+/=\s]*-----END CERTIFICATE-----)+\s*")
_SEQUENCE, _TCB_VENDOR, _TCB_FWIDS = 0x30, 0x80, 0xA6  # DER tags; TCG DICE Attestation Architecture 1.1, 6.1.1


@dataclass(frozen=True)
class DeviceIdentity:
    """What a chain says of its device: product ("GH100"), permanent identity (`pdi`, 8 bytes hex), model and ueid as NVIDIA claims them."""

    product: str
    pdi: str
    model: str
    ueid: str


def dice_extension(device_id: ec.EllipticCurvePublicKey, fwid: bytes) -> bytes:
    """DER (189 bytes) of SEQUENCE { INTEGER 1, SubjectPublicKeyInfo of DeviceID, SEQUENCE { sha384, FWID } }."""
    info = device_id.public_bytes(serialization.Encoding.DER, serialization.PublicFormat.SubjectPublicKeyInfo)
    content = b"\x02\x01\x01" + info + _FWID_HEAD + fwid
    return b"\x30\x81" + bytes([len(content)]) + content


@lru_cache(maxsize=16)
def parse_chain(pem: str) -> Chain:
    """Five certificates, leaf first, and nothing else. Raises: VerificationFailed `gpu-chain-malformed`."""
    data = pem.encode("utf-8", "replace").rstrip(b"\0")
    if len(data) > MAX_CHAIN_BYTES:
        raise _malformed(f"the GPU's chain has {len(data)} bytes", expected=f"at most {MAX_CHAIN_BYTES}")
    if not _PEM.fullmatch(data):
        raise _malformed("the GPU's chain is not PEM certificates")
    try:
        certificates = readable(x509.load_pem_x509_certificates(data))
    except BAD_CERTIFICATE:
        raise _malformed("the GPU's chain is not PEM certificates") from None
    if len(certificates) != CHAIN_LENGTH:
        raise _malformed(
            f"the GPU's chain has {len(certificates)} certificates, not {CHAIN_LENGTH}",
            expected="leaf, device identity, provisioner, product CA, root",
        )
    return Chain(certificates, "the GPU's chain", "gpu-chain")


def public_key(certificate: x509.Certificate) -> ec.EllipticCurvePublicKey:
    """The P-384 key of a device's certificate. Raises: VerificationFailed `gpu-chain-broken`."""
    return p384_chain.public_key(certificate, Chain((certificate,), "the GPU's chain", "gpu-chain"))


def chain_digest(chain: Chain) -> str:
    """SHA-256 over the DER certificates, leaf first; hex."""
    return sha256(b"".join(link.public_bytes(serialization.Encoding.DER) for link in chain.certificates)).hex()


def identity_of(chain: Chain) -> DeviceIdentity:
    """Which GPU a chain speaks of. Raises: VerificationFailed `gpu-device-type`.

    A switch hangs under the same root, so the root alone does not make a GPU.
    """
    leaf, identity = chain.certificates[:2]
    kind, pdi = divmod(identity.serial_number, 1 << 64)
    info = _device_info(leaf).split(":")
    if kind != GPU_IDENTITY or len(info) != 3 or not _PRODUCT.fullmatch(info[1]):
        raise VerificationFailed(
            "the certified device is not a GPU", code="gpu-device-type", expected="identity serial 41…, maker:G…:serial",
            got=f"{identity.serial_number:x}, {':'.join(info)}"[:120], remedy="offer the GPU's evidence, not a switch's",
        )  # fmt: skip
    names = identity.subject.get_attributes_for_oid(NameOID.COMMON_NAME)
    return DeviceIdentity(info[1], f"{pdi:016x}", str(names[0].value) if names else "", str(leaf.serial_number))


def _device_info(leaf: x509.Certificate) -> str:
    for extension in leaf.extensions:
        if isinstance(extension.value, x509.SubjectAlternativeName):
            for name in extension.value.get_values_for_type(x509.OtherName):
                if name.type_id == DEVICE_INFO and name.value[:1] == b"\x0c" and len(name.value) == 2 + name.value[1]:
                    return name.value[2:].decode("utf-8", "replace")
    return ""


def certified_firmware(chain: Chain) -> bytes:
    """FWID (48 bytes) certified by the leaf; Hopper also names the DeviceID key, which must be the identity certificate's.

    Raises:
        VerificationFailed: `gpu-device-id`; `gpu-chain-broken`: a key that cannot be read.
    """
    leaf, identity = chain.certificates[:2]
    for extension in leaf.extensions:
        if not isinstance(extension.value, x509.UnrecognizedExtension):
            continue
        der = extension.value.value
        if extension.oid == DICE_FWID:
            if der != dice_extension(p384_chain.public_key(identity, chain), der[-_FWID_BYTES:]):
                raise _not_dice("the leaf's DeviceID is not the key of the identity certificate")
            return der[-_FWID_BYTES:]
        if extension.oid == DICE_TCB_INFO:
            return _first_fwid(der)
    raise _not_dice("the leaf certifies no firmware id")


def _first_fwid(der: bytes) -> bytes:
    """FWID of a TcbInfo: SEQUENCE { [0] vendor …, [6] SEQUENCE OF { sha384, FWID } … }; of two the first is the firmware's."""
    outer = _elements(der)
    fields = dict(_elements(outer[0][1])) if len(outer) == 1 and outer[0][0] == _SEQUENCE else {}
    fwids = fields.get(_TCB_FWIDS, b"")
    whole, rest = divmod(len(fwids), len(_FWID_HEAD) + _FWID_BYTES)
    if fields.get(_TCB_VENDOR, b"") != b"NVIDIA" or not whole or rest:
        raise _not_dice("the leaf's TcbInfo is not as published")
    if any(tag != _SEQUENCE or not (b"\x30\x3d" + value).startswith(_FWID_HEAD) for tag, value in _elements(fwids)):
        raise _not_dice("the leaf's TcbInfo names a firmware id that is not SHA-384")
    return fwids[len(_FWID_HEAD) :][:_FWID_BYTES]


def _elements(der: bytes) -> list[tuple[int, bytes]]:
    """(tag, content) of a row of DER elements with one-byte tags, each at most 65535 bytes; no tag of a field twice."""
    found, at = [], 0
    while at < len(der):
        tag, size, at = der[at], der[at + 1] if at + 1 < len(der) else 0xFF, at + 2
        if size > 0x82 or size == 0x80:
            raise _not_dice("the leaf's TcbInfo is not DER")
        if size > 0x80:
            size, at = int.from_bytes(der[at : at + size - 0x80], "big"), at + size - 0x80
        if at + size > len(der):
            raise _not_dice("the leaf's TcbInfo is truncated")
        found.append((tag, der[at : at + size]))
        at += size
    if len({tag for tag, _ in found if tag != _SEQUENCE}) != sum(tag != _SEQUENCE for tag, _ in found):
        raise _not_dice("the leaf's TcbInfo repeats a field")
    return found


def _not_dice(why: str) -> VerificationFailed:
    return VerificationFailed(why, code="gpu-device-id")


def _malformed(why: str, expected: str | None = None) -> VerificationFailed:
    return VerificationFailed(why, code="gpu-chain-malformed", expected=expected)
