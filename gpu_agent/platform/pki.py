"""The emulated quoting PKI: root, platform CA, PCK leaf with the SGX extension. Knows no CVM, no quote and no file.

Real shapes (Intel SGX PCK Certificate Profile 1.5), names that cannot be taken for Intel's, an FMSPC that Intel does not use.
The root's and the platform CA's private keys are dropped after issuing: nobody can add a machine to an installation later.
"""

from __future__ import annotations

import secrets
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from shared.attestation.pck import DER_OCTETS, DER_OID, DER_SEQUENCE, SGX_EXTENSION, SGX_PREFIX

FMSPC = bytes.fromhex("ee6d75000000")
PCE_ID = bytes.fromhex("ee00")
DER_INTEGER, DER_ENUMERATED = 0x02, 0x0A
YEARS = 10


@dataclass(frozen=True)
class QuotingKeys:
    """What the emulated quoting enclave needs: the PCK key (PKCS8 PEM, secret) and the PEM chain leaf, platform CA, root."""

    pck_key: bytes = field(repr=False)
    chain: bytes
    root: bytes


def make_quoting_keys(installation: str, at: float) -> QuotingKeys:
    """A fresh PKI for one installation, valid from an hour before `at` (seconds since 1970) for ten years."""
    root_key, ca_key, pck_key = (ec.generate_private_key(ec.SECP256R1()) for _ in range(3))
    root_name = _name(f"EMULATED GPU Travelling CPU Root CA {installation}")
    ca_name = _name(f"EMULATED GPU Travelling Platform CA {installation}")
    leaf_name = _name(f"EMULATED GPU Travelling PCK Certificate {installation}")
    root = _authority(root_name, root_name, root_key, root_key, at, path_length=1)
    authority = _authority(ca_name, root_name, ca_key, root_key, at, path_length=0)
    leaf = _leaf(leaf_name, ca_name, pck_key, ca_key, at)
    return QuotingKeys(
        pck_key=pck_key.private_bytes(
            serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
        ),
        chain=b"".join(_pem(certificate) for certificate in (leaf, authority, root)),
        root=_pem(root),
    )


def _name(common: str) -> x509.Name:
    return x509.Name(
        [
            x509.NameAttribute(NameOID.ORGANIZATION_NAME, "GPU Travelling emulation, not a hardware maker"),
            x509.NameAttribute(NameOID.COMMON_NAME, common),
        ]
    )


def _builder(
    subject: x509.Name, issuer: x509.Name, key: ec.EllipticCurvePrivateKey, at: float
) -> x509.CertificateBuilder:
    start = datetime.fromtimestamp(at, UTC).replace(microsecond=0) - timedelta(hours=1)
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(start)
        .not_valid_after(start + timedelta(days=365 * YEARS))
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
    )


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


def _authority(
    subject: x509.Name,
    issuer: x509.Name,
    key: ec.EllipticCurvePrivateKey,
    issuer_key: ec.EllipticCurvePrivateKey,
    at: float,
    *,
    path_length: int,
) -> x509.Certificate:
    return (
        _builder(subject, issuer, key, at)
        .add_extension(x509.BasicConstraints(ca=True, path_length=path_length), critical=True)
        .add_extension(_usage(authority=True), critical=True)
        .add_extension(x509.AuthorityKeyIdentifier.from_issuer_public_key(issuer_key.public_key()), critical=False)
        .sign(issuer_key, hashes.SHA256())
    )


def _leaf(
    subject: x509.Name,
    issuer: x509.Name,
    key: ec.EllipticCurvePrivateKey,
    issuer_key: ec.EllipticCurvePrivateKey,
    at: float,
) -> x509.Certificate:
    return (
        _builder(subject, issuer, key, at)
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(_usage(authority=False), critical=True)
        .add_extension(x509.AuthorityKeyIdentifier.from_issuer_public_key(issuer_key.public_key()), critical=False)
        .add_extension(
            x509.UnrecognizedExtension(
                SGX_EXTENSION, sgx_extension(ppid=secrets.token_bytes(16), instance=secrets.token_bytes(16))
            ),
            critical=False,
        )
        .sign(issuer_key, hashes.SHA256())
    )


def sgx_extension(*, ppid: bytes, instance: bytes) -> bytes:
    """DER of the SGX extension: PPID (16), TCB, PCE id, FMSPC, type, platform instance id (16), configuration."""
    components = b"".join(_entry(bytes([2, index]), DER_INTEGER, b"\x01") for index in range(1, 17))
    tcb = components + _entry(b"\x02\x11", DER_INTEGER, b"\x01") + _entry(b"\x02\x12", DER_OCTETS, b"\x01" * 16)
    no = _tlv(0x01, b"\x00")
    configuration = b"".join(_tlv(DER_SEQUENCE, _oid(bytes([7, index])) + no) for index in range(1, 4))
    return _tlv(
        DER_SEQUENCE,
        b"".join(
            (
                _entry(b"\x01", DER_OCTETS, ppid),
                _entry(b"\x02", DER_SEQUENCE, tcb),
                _entry(b"\x03", DER_OCTETS, PCE_ID),
                _entry(b"\x04", DER_OCTETS, FMSPC),
                _entry(b"\x05", DER_ENUMERATED, b"\x00"),
                _entry(b"\x06", DER_OCTETS, instance),
                _entry(b"\x07", DER_SEQUENCE, configuration),
            )
        ),
    )


def _entry(arcs: bytes, tag: int, content: bytes) -> bytes:
    return _tlv(DER_SEQUENCE, _oid(arcs) + _tlv(tag, content))


def _oid(arcs: bytes) -> bytes:
    return _tlv(DER_OID, SGX_PREFIX + arcs)


def _tlv(tag: int, content: bytes) -> bytes:
    if len(content) < 0x80:
        return bytes([tag, len(content)]) + content
    length = len(content).to_bytes(2, "big").lstrip(b"\0")
    return bytes([tag, 0x80 | len(length)]) + length + content


def _pem(certificate: x509.Certificate) -> bytes:
    return certificate.public_bytes(serialization.Encoding.PEM)
