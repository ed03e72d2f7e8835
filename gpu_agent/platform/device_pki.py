"""Certificates of emulated GPUs and of their RIM signers in the published profiles. Knows no file, no installation and no firmware.

Subjects, extensions, serials and curves as for a GH100 (reference h100.md section 2), except for names: every subject says EMULATED,
and the revocation URLs lie under `.invalid`, which resolves nowhere (RFC 2606). NVIDIA's RIM signers end after about two years; these do
not, so that an installation does not stop one day.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Final

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import AuthorityInformationAccessOID, NameOID

from shared.attestation.gpu_chain import DEVICE_INFO, DICE_FWID, GPU_IDENTITY, dice_extension
from shared.attestation.gpu_trust import ROOT_NAMES, Purpose

PDI_BYTES: Final = 8
_NOT_BEFORE = datetime(2022, 3, 1, tzinfo=UTC)
_NO_END = datetime(9999, 12, 31, 23, 59, 59, tzinfo=UTC)  # RFC 5280 4.1.2.5: no well-defined expiration
_ORGANISATION = "GPU Travelling"
_REVOCATION_HOST = "http://emulated.invalid"


@dataclass(frozen=True)
class Issued:
    """A certificate and the key that it certifies."""

    certificate: x509.Certificate
    key: ec.EllipticCurvePrivateKey = field(repr=False)


def make_root(installation: str, purpose: Purpose = "device") -> Issued:
    """L1: self-signed root of one installation, for devices or for manifests."""
    key = _new_key()
    name = _name(f"{ROOT_NAMES[purpose]} {installation}")
    builder = _builder(name, name, key.public_key(), key.public_key(), x509.random_serial_number())
    return Issued(_authority(builder, crl_sign=True).sign(key, hashes.SHA384()), key)


def make_intermediate(issuer: Issued, common_name: str, *, path_length: int | None = None) -> Issued:
    """L2 product CA or L3 provisioner, with (unreachable) CRL and OCSP addresses; with `path_length` 0 the L3 of manifests."""
    key = _new_key()
    builder = _builder(
        _name(f"EMULATED {common_name}"), issuer.certificate.subject, key.public_key(), issuer.key.public_key(),
        x509.random_serial_number(),
    )  # fmt: skip
    builder = _authority(builder, crl_sign=True, path_length=path_length).add_extension(_ocsp_address(), critical=False)
    if path_length is None:
        point = x509.DistributionPoint([x509.UniformResourceIdentifier(f"{_REVOCATION_HOST}/crl")], None, None, None)
        builder = builder.add_extension(x509.CRLDistributionPoints([point]), critical=False)
    return Issued(builder.sign(issuer.key, hashes.SHA384()), key)


def make_rim_signer(issuer: Issued) -> Issued:
    """L4 of manifests: signs them, issues nothing."""
    key = _new_key()
    builder = (
        _builder(
            _name("EMULATED HCC RIM L4 Signer"), issuer.certificate.subject, key.public_key(), issuer.key.public_key(),
            x509.random_serial_number(),
        )
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(_usage(digital_signature=True), critical=True)
        .add_extension(_ocsp_address(), critical=False)
    )  # fmt: skip
    return Issued(builder.sign(issuer.key, hashes.SHA384()), key)


def _ocsp_address() -> x509.AuthorityInformationAccess:
    address = x509.UniformResourceIdentifier(f"{_REVOCATION_HOST}/ocsp")
    return x509.AuthorityInformationAccess([x509.AccessDescription(AuthorityInformationAccessOID.OCSP, address)])


def make_identity(issuer: Issued, pdi: bytes) -> Issued:
    """L4: the device's permanent identity (in ROM); serial = 0x41 (GPU) ‖ PDI (8 bytes)."""
    key = _new_key()
    serial = int.from_bytes(bytes([GPU_IDENTITY]) + pdi, "big")
    name = _name("EMULATED GH100 A01 GSP BROM", serial)
    builder = _builder(name, issuer.certificate.subject, key.public_key(), issuer.key.public_key(), serial)
    return Issued(_authority(builder, crl_sign=False).sign(issuer.key, hashes.SHA384()), key)


def make_leaf(identity: Issued, fwid: bytes) -> Issued:
    """L5: the attestation key of one firmware; serial from its key identifier, DICE extension naming the L4 key and the FWID."""
    key = _new_key()
    digest = x509.SubjectKeyIdentifier.from_public_key(key.public_key()).digest
    serial = int.from_bytes(bytes([digest[0] & 0x7F | 0x40]) + digest[1:], "big")
    name = _name("EMULATED GH100 A01 GSP FMC LF", serial)
    pdi = identity.certificate.serial_number.to_bytes(PDI_BYTES + 1, "big")[1:]
    text = f"EMULATED:GH100:{pdi.hex().upper()}".encode()
    info = x509.OtherName(DEVICE_INFO, b"\x0c" + bytes([len(text)]) + text)
    dice = x509.UnrecognizedExtension(DICE_FWID, dice_extension(identity.key.public_key(), fwid))
    builder = (
        _builder(name, identity.certificate.subject, key.public_key(), identity.key.public_key(), serial)
        .add_extension(_usage(digital_signature=True), critical=True)
        .add_extension(x509.SubjectAlternativeName([info]), critical=False)
        .add_extension(dice, critical=False)
    )
    return Issued(builder.sign(identity.key, hashes.SHA384()), key)


def certificate_pem(certificate: x509.Certificate) -> bytes:
    """PEM."""
    return certificate.public_bytes(serialization.Encoding.PEM)


def key_pem(key: ec.EllipticCurvePrivateKey) -> bytes:
    """PKCS8 PEM, unencrypted: for files with mode 0600 only."""
    return key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )


def _new_key() -> ec.EllipticCurvePrivateKey:
    return ec.generate_private_key(ec.SECP384R1())


def _name(common_name: str, serial: int | None = None) -> x509.Name:
    parts = [x509.NameAttribute(NameOID.ORGANIZATION_NAME, _ORGANISATION)]
    if serial is not None:
        parts.append(x509.NameAttribute(NameOID.SERIAL_NUMBER, f"{serial:X}"))
    return x509.Name([*parts, x509.NameAttribute(NameOID.COMMON_NAME, common_name)])


def _builder(
    subject: x509.Name, issuer: x509.Name, key: ec.EllipticCurvePublicKey, issuer_key: ec.EllipticCurvePublicKey, serial: int
) -> x509.CertificateBuilder:  # fmt: skip
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key)
        .serial_number(serial)
        .not_valid_before(_NOT_BEFORE)
        .not_valid_after(_NO_END)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key), critical=False)
        .add_extension(x509.AuthorityKeyIdentifier.from_issuer_public_key(issuer_key), critical=False)
    )


def _authority(
    builder: x509.CertificateBuilder, *, crl_sign: bool, path_length: int | None = None
) -> x509.CertificateBuilder:
    usage = _usage(key_cert_sign=True, crl_sign=crl_sign)
    basic = x509.BasicConstraints(ca=True, path_length=path_length)
    return builder.add_extension(basic, critical=True).add_extension(usage, critical=True)


def _usage(*, digital_signature: bool = False, key_cert_sign: bool = False, crl_sign: bool = False) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=digital_signature,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        key_cert_sign=key_cert_sign,
        crl_sign=crl_sign,
        encipher_only=False,
        decipher_only=False,
    )
