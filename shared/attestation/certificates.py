"""Certificates, revocation lists and raw P-256 signatures as CPU makers use them. Knows no quote, no collateral format and no policy.

Chains are short and of known length, and end in a certificate that the caller pinned; nothing is ever searched for by name.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime
from functools import lru_cache
from typing import Final

from cryptography import x509
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.asymmetric.utils import encode_dss_signature
from cryptography.x509.oid import ExtensionOID

from shared.attestation.results import Expired
from shared.attestation.x509_parts import BAD_CERTIFICATE, check_names, readable
from shared.canonical import sha256
from shared.errors import VerificationFailed

MAX_CHAIN_BYTES = 16 * 1024
MAX_CRL_BYTES = 1024 * 1024
_CRITICAL_KNOWN: Final = {ExtensionOID.BASIC_CONSTRAINTS, ExtensionOID.KEY_USAGE}
KNOWN: Final = 128
"""How many certificates are remembered as sound: the same authorities stand in a chain, in its collateral's and in the next quote's."""


@dataclass(frozen=True)
class Window:
    """When something counts: seconds since 1970, both ends included."""

    name: str
    start: float
    end: float

    def check(self, at: float, code: str, remedy: str | None = None) -> None:
        """Raises: Expired: `at` is before the start or after the end."""
        if not self.start <= at <= self.end:
            raise Expired(
                f"the {self.name} {'is not valid yet' if at < self.start else 'has expired'}",
                code=code,
                expected=f"{moment(self.start)} to {moment(self.end)}",
                got=moment(at),
                remedy=remedy,
            )


def moment(at: float) -> str:
    """A time for people, UTC."""
    try:
        return f"{datetime.fromtimestamp(at, UTC):%Y-%m-%d %H:%M:%S}"
    except (OverflowError, ValueError, OSError):
        return f"{at:.0f} s"


def load_chain(pem: bytes, length: int, what: str, code: str) -> list[x509.Certificate]:
    """Exactly `length` certificates, leaf first. Raises: VerificationFailed `code`."""
    if len(pem) > MAX_CHAIN_BYTES:
        raise VerificationFailed(f"the {what} has {len(pem)} bytes", code=code)
    try:
        chain = _parsed(pem.rstrip(b"\0"))
    except BAD_CERTIFICATE:
        raise VerificationFailed(f"the {what} is not PEM certificates", code=code) from None
    if len(chain) != length:
        raise VerificationFailed(f"the {what} has {len(chain)} certificates, not {length}", code=code)
    return list(chain)


@lru_cache(KNOWN)
def _parsed(pem: bytes) -> tuple[x509.Certificate, ...]:
    return readable(x509.load_pem_x509_certificates(pem))


def validity(name: str, certificate: x509.Certificate) -> Window:
    """A certificate's own time of validity."""
    return Window(name, certificate.not_valid_before_utc.timestamp(), certificate.not_valid_after_utc.timestamp())


def check_issued(name: str, certificate: x509.Certificate, issuer: x509.Certificate, code: str) -> None:
    """`issuer` is an authority and signed `certificate`, by name and by key; nothing that must be understood of it is not (RFC 5280 4.2).

    Raises:
        VerificationFailed: `code`.
    """
    if not is_authority(issuer):
        raise VerificationFailed(f"the issuer of the {name} is not a certificate authority", code=code)
    try:
        _issued(certificate, issuer)
        unknown = [known.oid for known in certificate.extensions if known.critical and known.oid not in _CRITICAL_KNOWN]
    except (InvalidSignature, *BAD_CERTIFICATE):
        raise VerificationFailed(f"the {name} was not issued by the next certificate", code=code) from None
    if unknown:
        what = f"the {name} has the unknown critical extension {unknown[0].dotted_string}"
        raise VerificationFailed(what, code=code)


def check_signs(name: str, certificate: x509.Certificate, code: str) -> None:
    """It is for signatures over data: no authority, digitalSignature stated, for no other purpose (Intel's profiles name none).

    Raises:
        VerificationFailed: `code`.
    """
    if is_authority(certificate):
        raise VerificationFailed(f"the {name} is a certificate authority", code=code)
    try:
        usages = [known.value for known in certificate.extensions if isinstance(known.value, x509.KeyUsage)]
        purposes = [known for known in certificate.extensions if isinstance(known.value, x509.ExtendedKeyUsage)]
    except BAD_CERTIFICATE:
        raise VerificationFailed(f"the {name} cannot be read", code=code) from None
    if purposes or not all(usage.digital_signature for usage in usages) or not usages:
        raise VerificationFailed(f"the {name} is not for signing data", code=code)


@lru_cache(KNOWN)
def _issued(certificate: x509.Certificate, issuer: x509.Certificate) -> None:
    certificate.verify_directly_issued_by(issuer)  # what it raises is not remembered: a failure is found anew each time


@lru_cache(KNOWN)
def is_authority(certificate: x509.Certificate) -> bool:
    """Whether it may issue certificates: CA and keyCertSign, both stated."""
    try:
        basic = certificate.extensions.get_extension_for_class(x509.BasicConstraints).value
        usage = certificate.extensions.get_extension_for_class(x509.KeyUsage).value
    except (x509.ExtensionNotFound, *BAD_CERTIFICATE):
        return False
    return basic.ca and usage.key_cert_sign


def p256_key(name: str, certificate: x509.Certificate, code: str) -> ec.EllipticCurvePublicKey:
    """The certificate's key, which must be P-256. Raises: VerificationFailed `code`."""
    try:
        key = certificate.public_key()
    except BAD_CERTIFICATE:
        raise VerificationFailed(f"the {name}'s key cannot be read", code=code) from None
    if not isinstance(key, ec.EllipticCurvePublicKey) or not isinstance(key.curve, ec.SECP256R1):
        raise VerificationFailed(f"the {name}'s key is not P-256", code=code)
    return key


@lru_cache(KNOWN)
def authority_name(certificate: x509.Certificate) -> str:
    """Subject and SHA-256 of the key: a renewed certificate of the same authority has the same name. Raises: VerificationFailed."""
    key = p256_key("certificate authority", certificate, "certificate-authority").public_bytes(
        serialization.Encoding.X962, serialization.PublicFormat.UncompressedPoint
    )
    return f"{certificate.subject.rfc4514_string()}, key {sha256(key).hex()}"


def check_p256(key: ec.EllipticCurvePublicKey, signature: bytes, data: bytes, code: str, failure: str) -> None:
    """ECDSA with SHA-256, signature r ‖ s (64 bytes, big-endian). Raises: VerificationFailed `code`, saying `failure`."""
    r, s = int.from_bytes(signature[:32], "big"), int.from_bytes(signature[32:], "big")
    try:
        key.verify(encode_dss_signature(r, s), data, ec.ECDSA(hashes.SHA256()))
    except InvalidSignature:
        raise VerificationFailed(failure, code=code) from None


class RevocationList:
    """A CRL that its issuer signed: its number, its time, and who is on it."""

    def __init__(self, name: str, der: bytes, issuer: x509.Certificate, code: str) -> None:
        """Raises: VerificationFailed `code`: not a CRL, not by `issuer`, who may sign one, without number or next update, or partial."""
        if len(der) > MAX_CRL_BYTES:
            raise VerificationFailed(f"the {name} has {len(der)} bytes", code=code)
        try:
            self._list = x509.load_der_x509_crl(der)
            check_names(self._list.tbs_certlist_bytes)
            extensions = self._list.extensions
            self.number = extensions.get_extension_for_class(x509.CRLNumber).value.crl_number
            may = issuer.extensions.get_extension_for_class(x509.KeyUsage).value.crl_sign
            signed = (
                may
                and self._list.issuer == issuer.subject
                and self._list.is_signature_valid(p256_key(f"issuer of the {name}", issuer, code))
            )
            # A delta or a list for part of the certificates would say nothing about the others.
            partial = any(extension.critical for extension in extensions)
            start, end = self._list.last_update_utc, self._list.next_update_utc
        except (x509.ExtensionNotFound, *BAD_CERTIFICATE):
            raise VerificationFailed(f"the {name} is not a complete revocation list", code=code) from None
        if not signed or partial or end is None:
            raise VerificationFailed(f"the {name} is not a whole list signed by its certificate authority", code=code)
        self.issuer = authority_name(issuer)
        self.window = Window(name, start.timestamp(), end.timestamp())

    def check(self, name: str, certificate: x509.Certificate, code: str) -> None:
        """Raises: VerificationFailed `code`: the certificate is revoked."""
        if self._list.get_revoked_certificate_by_serial_number(certificate.serial_number) is not None:
            raise VerificationFailed(
                f"the {name} is revoked",
                code=code,
                expected=f"not on the {self.window.name}",
                got=f"serial number {certificate.serial_number:x}",
                remedy="do not use this machine; its maker has withdrawn its certificate",
            )
