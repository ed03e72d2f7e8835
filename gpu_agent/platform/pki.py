"""The emulated CPU maker's PKI: root, platform CA, TCB signer, PCK leaf with the SGX extension. Knows no guest, no quote and no file.

Real shapes (Intel SGX PCK Certificate Profile 1.5), names that cannot be taken for Intel's. The maker's keys issue machines, sign
TCB info and revocation lists; serving a guest needs none of them.
"""

from __future__ import annotations

import secrets
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from gpu_agent.platform.machine import COMPONENTS, CPU_SVN, FMSPC, PCE_ID, PCE_SVN
from shared.attestation.pck import (
    DER_BOOLEAN,
    DER_ENUMERATED,
    DER_INTEGER,
    DER_OCTETS,
    DER_OID,
    DER_SEQUENCE,
    SGX_EXTENSION,
    SGX_PREFIX,
)

YEARS = 10


@dataclass(frozen=True)
class QuotingKeys:
    """What the emulated quoting enclave needs: the PCK key (PKCS8 PEM, secret) and the PEM chain leaf, platform CA, root."""

    pck_key: bytes = field(repr=False)
    chain: bytes


@dataclass(frozen=True)
class Issuer:
    """A certificate and its private key."""

    certificate: x509.Certificate
    key: ec.EllipticCurvePrivateKey = field(repr=False)


@dataclass(frozen=True)
class Maker:
    """The emulated maker of one installation: its root, the CA of its machines, the signer of its TCB statements."""

    root: Issuer
    authority: Issuer
    signer: Issuer

    def machine(self, at: float) -> QuotingKeys:
        """A new machine, with an identity of its own, valid from an hour before `at` (seconds since 1970) for ten years."""
        key = ec.generate_private_key(ec.SECP256R1())
        extension = sgx_extension(ppid=secrets.token_bytes(16), instance=secrets.token_bytes(16))
        leaf = _issue("EMULATED GPU Travelling PCK Certificate", key, self.authority, at, extension=extension)
        chain = (leaf, self.authority.certificate, self.root.certificate)
        return QuotingKeys(key_pem(key), b"".join(certificate_pem(certificate) for certificate in chain))


def make_maker(installation: str, at: float) -> Maker:
    """A fresh maker; its certificates are valid from an hour before `at` (seconds since 1970) for ten years."""
    keys = [ec.generate_private_key(ec.SECP256R1()) for _ in range(3)]
    root = Issuer(_issue(f"EMULATED GPU Travelling CPU Root CA {installation}", keys[0], None, at, depth=1), keys[0])
    authority = _issue(f"EMULATED GPU Travelling PCK Platform CA {installation}", keys[1], root, at, depth=0)
    signer = _issue(f"EMULATED GPU Travelling TCB Signing {installation}", keys[2], root, at)
    return Maker(root, Issuer(authority, keys[1]), Issuer(signer, keys[2]))


def key_pem(key: ec.EllipticCurvePrivateKey) -> bytes:
    """PKCS8 PEM, secret."""
    return key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )


def certificate_pem(certificate: x509.Certificate) -> bytes:
    """PEM."""
    return certificate.public_bytes(serialization.Encoding.PEM)


def _issue(
    name: str,
    key: ec.EllipticCurvePrivateKey,
    issuer: Issuer | None,
    at: float,
    *,
    depth: int | None = None,
    extension: bytes | None = None,
) -> x509.Certificate:
    """A certificate; self-signed without an issuer; an authority when `depth` says how many may follow it."""
    subject = x509.Name(
        [
            x509.NameAttribute(NameOID.ORGANIZATION_NAME, "GPU Travelling emulation, not a hardware maker"),
            x509.NameAttribute(NameOID.COMMON_NAME, name),
        ]
    )
    start = datetime.fromtimestamp(at, UTC).replace(microsecond=0) - timedelta(hours=1)
    signing = issuer.key if issuer is not None else key
    builder = (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer.certificate.subject if issuer is not None else subject)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(start)
        .not_valid_after(start + timedelta(days=365 * YEARS))
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
        .add_extension(x509.BasicConstraints(ca=depth is not None, path_length=depth), critical=True)
        .add_extension(_usage(authority=depth is not None), critical=True)
        .add_extension(x509.AuthorityKeyIdentifier.from_issuer_public_key(signing.public_key()), critical=False)
    )
    if extension is not None:
        builder = builder.add_extension(x509.UnrecognizedExtension(SGX_EXTENSION, extension), critical=False)
    return builder.sign(signing, hashes.SHA256())


def _usage(*, authority: bool) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=not authority,
        content_commitment=not authority,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        key_cert_sign=authority,
        crl_sign=authority,
        encipher_only=False,
        decipher_only=False,
    )


def sgx_extension(*, ppid: bytes, instance: bytes) -> bytes:
    """DER of the SGX extension: PPID (16), TCB, PCE id, FMSPC, type, platform instance id (16), configuration."""
    components = b"".join(_entry((2, arc), DER_INTEGER, bytes([svn])) for arc, svn in enumerate(COMPONENTS, 1))
    tcb = components + _entry((2, 17), DER_INTEGER, bytes([PCE_SVN])) + _entry((2, 18), DER_OCTETS, CPU_SVN)
    configuration = b"".join(_entry((7, arc), DER_BOOLEAN, b"\x00") for arc in (1, 2, 3))
    return _tlv(
        DER_SEQUENCE,
        b"".join(
            (
                _entry((1,), DER_OCTETS, ppid),
                _entry((2,), DER_SEQUENCE, tcb),
                _entry((3,), DER_OCTETS, PCE_ID),
                _entry((4,), DER_OCTETS, FMSPC),
                _entry((5,), DER_ENUMERATED, b"\x00"),
                _entry((6,), DER_OCTETS, instance),
                _entry((7,), DER_SEQUENCE, configuration),
            )
        ),
    )


def _entry(arcs: tuple[int, ...], tag: int, content: bytes) -> bytes:
    return _tlv(DER_SEQUENCE, _tlv(DER_OID, SGX_PREFIX + bytes(arcs)) + _tlv(tag, content))


def _tlv(tag: int, content: bytes) -> bytes:
    if len(content) < 0x80:
        return bytes([tag, len(content)]) + content
    length = len(content).to_bytes(2, "big").lstrip(b"\0")
    return bytes([tag, 0x80 | len(length)]) + length + content
