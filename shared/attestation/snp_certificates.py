"""AMD's certificates: loading them, and what a leaf (VCEK or VLEK) says of the chip and its firmware. Knows no chain and no policy.

Source: Versioned Chip Endorsement Key (VCEK) Certificate and KDS Interface Specification (AMD 57230), extensions under
1.3.6.1.4.1.3704.1: 2 product, 3.1 bootloader, 3.2 tee, 3.3 snp, 3.8 microcode, 3.9 fmc (Turin), 4 hwID, 5 CSP id (VLEK).
"""

from __future__ import annotations

import re
from base64 import b64decode
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from cryptography import x509
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtensionOID, NameOID

from shared.attestation.snp_report import SigningKey, Tcb
from shared.attestation.x509_parts import BAD_CERTIFICATE, PEM_CERTIFICATE, check_names, readable
from shared.canonical import sha256
from shared.claims.snp_rules import PRODUCTS, Product
from shared.errors import VerificationFailed

ARC: Final = "1.3.6.1.4.1.3704.1."
MAX_CERTIFICATE_BYTES: Final = 8 * 1024
MAX_CRL_BYTES: Final = 64 * 1024
HWID_BYTES, TURIN_HWID_BYTES = 64, 8
LEAF_KINDS: Final = {"SEV-VCEK": SigningKey.VCEK, "SEV-VLEK": SigningKey.VLEK}

# Certificate { TBSCertificate { [0] version 3, serialNumber …: all AMD certificates begin so, for they hold an RSA signature of 512 bytes.
_HEAD = re.compile(rb"\x30\x82..\x30\x82..\xa0\x03\x02\x01\x02\x02(.)(.)", re.DOTALL)
_TBS_AT, _SERIAL_AT = 4, 15
_SIGNATURE_HEAD = b"\x03\x82\x02\x01\x00"  # BIT STRING of an RSA-4096 signature
_SIGNATURE_BYTES = len(_SIGNATURE_HEAD) + 512
_PRODUCT_NAME = re.compile(rb"\x16[\x05-\x20](Milan|Genoa|Turin)(-[A-Z][0-9])?")
_PATCH_LEVELS = {"bootloader": "3.1", "tee": "3.2", "snp": "3.3", "microcode": "3.8"}
_RESERVED_LEVELS = ("3.4", "3.5", "3.6", "3.7")
_CRITICAL_KNOWN = {ExtensionOID.BASIC_CONSTRAINTS, ExtensionOID.KEY_USAGE}


@dataclass(frozen=True)
class AmdCertificate:
    """One certificate as it came.

    `signed` is the part that its issuer signed; `serial` None where it is zero, which says nothing about one certificate.
    """

    parsed: x509.Certificate
    der: bytes
    signed: bytes
    serial: int | None
    extensions: x509.Extensions

    @property
    def fingerprint(self) -> str:
        """SHA-256 over the DER, hex."""
        return sha256(self.der).hex()

    @property
    def subject(self) -> str:
        """For people."""
        return self.parsed.subject.rfc4514_string()

    @property
    def common_name(self) -> str:
        """Of the subject; "" where there is none or several."""
        return _common_name(self.parsed.subject)

    @property
    def self_issued(self) -> bool:
        """Whether it names itself as issuer: a root's form."""
        return self.parsed.subject == self.parsed.issuer


def load_certificate(data: bytes) -> AmdCertificate:
    """One certificate from DER or PEM.

    Most real VCEKs and VLEKs carry serial number 0, which `cryptography` 50 loads with a deprecation warning and a later version
    will refuse. It never sees the zero: the byte becomes 1 before loading, and the signature is checked over the bytes as they
    came. So neither the warning nor a later refusal reaches us; a negative serial number, which would warn too, is refused here.

    Raises:
        VerificationFailed: `snp-certificate-malformed`.
    """
    if len(data) > MAX_CERTIFICATE_BYTES:
        raise malformed(f"a certificate has {len(data)} bytes")
    if data.startswith(b"-----BEGIN"):
        found = pem_certificates(data)
        if len(found) != 1:
            raise malformed(f"{len(found)} PEM certificates where one is expected")
        data = found[0]
    head = _HEAD.match(data)
    if head is None or head[2][0] >= 0x80:
        raise malformed("the data is not an X.509 version 3 certificate of AMD's form")
    zero = head[1] == b"\x01" and head[2] == b"\x00"
    loadable = data[:_SERIAL_AT] + b"\x01" + data[_SERIAL_AT + 1 :] if zero else data
    try:
        # Read now, so that a malformed name is found here and not in the middle of a comparison.
        (parsed,) = readable([x509.load_der_x509_certificate(loadable)])
        length = len(parsed.tbs_certificate_bytes)
        serial = None if zero else parsed.serial_number
        extensions = parsed.extensions
    except BAD_CERTIFICATE:
        raise malformed("a certificate cannot be read") from None
    if not _one_algorithm(data, length, head[1][0]):
        raise malformed("a certificate names another signature algorithm outside than inside what is signed")
    unknown = [extension.oid for extension in extensions if extension.critical and extension.oid not in _CRITICAL_KNOWN]
    if unknown:
        raise malformed(f"a certificate has the unknown critical extension {unknown[0].dotted_string}")
    return AmdCertificate(parsed, data, data[_TBS_AT : _TBS_AT + length], serial, extensions)


def _one_algorithm(data: bytes, signed_length: int, serial_length: int) -> bool:
    """Whether the algorithm behind the signed part, which nobody signed, is the one within it, and an RSA-4096 signature ends the data."""
    outer = data[_TBS_AT + signed_length : -_SIGNATURE_BYTES]
    start = _SERIAL_AT + serial_length
    ends = data[-_SIGNATURE_BYTES:].startswith(_SIGNATURE_HEAD)
    return ends and bool(outer) and data[start : start + len(outer)] == outer


def load_crl(data: bytes) -> x509.CertificateRevocationList:
    """A whole revocation list from DER: one with a critical extension may be partial (RFC 5280 5.2), and says of nobody that he is good.

    Raises:
        VerificationFailed: `snp-crl-malformed`.
    """
    if len(data) <= MAX_CRL_BYTES:
        try:
            crl = x509.load_der_x509_crl(data)
            check_names(crl.tbs_certlist_bytes)
            # Read now, so that a malformed name, time or extension is found here.
            whole = not any(extension.critical for extension in crl.extensions)
            if whole and (crl.issuer, crl.last_update_utc) and crl.next_update_utc is not None:
                return crl
        except BAD_CERTIFICATE:
            pass
    raise VerificationFailed("a revocation list cannot be read", code="snp-crl-malformed")


def pem_certificates(data: bytes) -> list[bytes]:
    """DER of every CERTIFICATE block. Raises: VerificationFailed `snp-certificate-malformed`."""
    try:
        return [b64decode(b"".join(body.split()), validate=True) for body in PEM_CERTIFICATE.findall(data)]
    except ValueError:
        raise malformed("a PEM certificate is not base64") from None


@dataclass(frozen=True)
class Leaf:
    """What a leaf certificate says; nothing of it is believed before its chain is verified.

    `hwid`: 64 bytes, zero-padded on Turin, b"" in a VLEK. `csp_id` names the cloud of a VLEK, "" in a VCEK.
    """

    certificate: AmdCertificate
    key: ec.EllipticCurvePublicKey
    kind: SigningKey
    product: Product
    tcb: Tcb
    hwid: bytes
    csp_id: str


def read_leaf(certificate: AmdCertificate) -> Leaf:
    """The leaf's kind, key and extensions. Raises: VerificationFailed `snp-leaf-malformed`."""
    kind = LEAF_KINDS.get(certificate.common_name)
    if kind is None:
        raise _bad_leaf("the leaf is named neither SEV-VCEK nor SEV-VLEK")
    try:
        key = certificate.parsed.public_key()
    except BAD_CERTIFICATE:
        raise _bad_leaf("the leaf's key cannot be read") from None
    if not isinstance(key, ec.EllipticCurvePublicKey) or not isinstance(key.curve, ec.SECP384R1):
        raise _bad_leaf("the leaf's key is not P-384")
    values = _values(certificate.extensions)
    name = _PRODUCT_NAME.fullmatch(values.get("2", b""))
    if name is None or name.string[1] != len(name.string) - 2:
        raise _bad_leaf("the leaf names no product that we know")
    product = next(product for product in PRODUCTS if product.encode() == name[1])
    hwid, csp_id = _hwid(values.get("4"), product), _csp_id(values.get("5"))
    if bool(hwid) != (kind is SigningKey.VCEK) or bool(csp_id) != (kind is SigningKey.VLEK):
        raise _bad_leaf("a VCEK names a chip and a VLEK names a cloud; this leaf does not")
    return Leaf(certificate, key, kind, product, _tcb(values, product), hwid, csp_id)


def _values(extensions: x509.Extensions) -> dict[str, bytes]:
    """AMD's extensions by their arcs below 1.3.6.1.4.1.3704.1."""
    return {
        extension.oid.dotted_string.removeprefix(ARC): extension.value.value
        for extension in extensions
        if extension.oid.dotted_string.startswith(ARC) and isinstance(extension.value, x509.UnrecognizedExtension)
    }


def _tcb(values: Mapping[str, bytes], product: Product) -> Tcb:
    turin = product == "Turin"
    reserved = _RESERVED_LEVELS[1:] if turin else _RESERVED_LEVELS
    if any(_level(values[arc], arc) for arc in reserved if arc in values) or (("3.9" in values) != turin):
        raise _bad_leaf(f"the leaf's patch levels are not those of {product}")
    levels = {name: _level(values.get(arc, b""), arc) for name, arc in _PATCH_LEVELS.items()}
    return Tcb(**levels, fmc=_level(values["3.9"], "3.9") if turin else None)


def _level(der: bytes, arc: str) -> int:
    """A DER INTEGER from 0 to 255."""
    value = der[2:]
    short, long = len(value) == 1 and value[0] < 0x80, len(value) == 2 and value[0] == 0 and value[1] >= 0x80
    if der[:2] != bytes([0x02, len(value) & 0xFF]) or not (short or long):
        raise _bad_leaf(f"extension {arc} of the leaf is not a patch level")
    return value[-1]


def _hwid(value: bytes | None, product: Product) -> bytes:
    """Raw on most certificates, wrapped into an OCTET STRING on some."""
    if value is None:
        return b""
    size = TURIN_HWID_BYTES if product == "Turin" else HWID_BYTES
    if len(value) == size + 2 and value[:2] == bytes([0x04, size]):
        value = value[2:]
    if len(value) != size or not any(value):
        raise _bad_leaf(f"the leaf's hwID has not {size} bytes")
    return value.ljust(HWID_BYTES, b"\0")


def _csp_id(der: bytes | None) -> str:
    """An IA5String such as "CN=cc-us-east-2.amazonaws.com"."""
    if der is None:
        return ""
    if len(der) < 3 or der[:2] != bytes([0x16, len(der) - 2]) or len(der) > 0x81 or not der[2:].isascii():
        raise _bad_leaf("the leaf's CSP id is not a text")
    return der[2:].decode("ascii")


def _common_name(name: x509.Name) -> str:
    found = name.get_attributes_for_oid(NameOID.COMMON_NAME)
    return str(found[0].value) if len(found) == 1 else ""


def malformed(why: str) -> VerificationFailed:
    """The refusal of a certificate that cannot be used."""
    return VerificationFailed(why, code="snp-certificate-malformed")


def _bad_leaf(why: str) -> VerificationFailed:
    return VerificationFailed(why, code="snp-leaf-malformed")
