"""Hostile bytes and over-permissive issuers against the GPU verifier: refused within the error family. Knows no session."""

from __future__ import annotations

import base64
from collections.abc import Callable

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from hypothesis import given, settings
from hypothesis import strategies as st

from gpu_agent.platform import device_pki as pki
from shared.attestation.gpu_chain import (
    DICE_FWID,
    DICE_TCB_INFO,
    DeviceIdentity,
    certified_firmware,
    identity_of,
    parse_chain,
    public_key,
)
from shared.attestation.gpu_report import parse_report
from shared.attestation.gpu_trust import GpuRoots
from shared.attestation.gpu_verifier import verify_statement_key
from shared.attestation.p384_chain import Chain, anchored, check_links, check_validity
from shared.crypto import ecc
from shared.errors import BadRequest, VerificationFailed
from shared.wire.spdm import get_measurements
from tests.attestation.gpu_evidence_world import AT, NONCE, Factory, GpuWorld

FWID = b"f" * 48


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> GpuWorld:
    return GpuWorld.make(tmp_path_factory.mktemp("gpu"))


def pem_of(ders: list[bytes]) -> str:
    return "".join(
        f"-----BEGIN CERTIFICATE-----\n{base64.encodebytes(der).decode()}-----END CERTIFICATE-----\n" for der in ders
    )


def ders_of(chain: str) -> list[bytes]:
    loaded = x509.load_pem_x509_certificates(chain.encode())
    return [certificate.public_bytes(serialization.Encoding.DER) for certificate in loaded]


def walk(pem: str, roots: GpuRoots) -> DeviceIdentity:
    """Everything that a chain must be, in the order of the recipe."""
    chain = parse_chain(pem)
    anchored(chain, roots.certificates)
    check_links(chain)
    check_validity(chain, AT)
    certified_firmware(chain)
    return identity_of(chain)


# ------------------------------------------------------------------ hostile bytes


@settings(max_examples=200, deadline=None)
@given(st.binary(max_size=5000), st.booleans())
def test_any_bytes_as_a_report(data: bytes, prefixed: bool) -> None:
    with pytest.raises(BadRequest):
        parse_report(get_measurements(NONCE) + data if prefixed else data)


@settings(max_examples=200, deadline=None)
@given(st.integers(0, 4), st.lists(st.tuples(st.integers(0, 4095), st.integers(1, 255)), min_size=1, max_size=4))
def test_a_damaged_certificate(world: GpuWorld, which: int, damage: list[tuple[int, int]]) -> None:
    """Also the stages behind the signature check, as hostile input would reach them if an earlier one were missing."""
    ders = [bytearray(der) for der in ders_of(world.rot.chain_pem)]
    for at, change in damage:
        ders[which][at % len(ders[which])] ^= change
    text = pem_of([bytes(der) for der in ders])
    try:
        device = walk(text, world.trust.roots)
    except VerificationFailed:
        pass
    else:  # two changes may cancel; a BIT STRING's unused-bits count lies outside of what the issuer signed
        assert device == walk(world.rot.chain_pem, world.trust.roots)
    stages: list[Callable[[Chain], object]] = [identity_of, certified_firmware, check_links]
    for stage in stages:
        try:
            stage(parse_chain(text))
        except VerificationFailed:
            continue


@settings(max_examples=100, deadline=None)
@given(st.integers(0, 400), st.integers(1, 255))
def test_a_damaged_statement_certificate(world: GpuWorld, at: int, change: int) -> None:
    gpu, good = world.verify(), world.rot.statement_certificate
    bad = bytearray(good)
    bad[at % len(bad)] ^= change
    with pytest.raises((VerificationFailed, BadRequest)):
        verify_statement_key(gpu, bytes(bad))


@settings(max_examples=100, deadline=None)
@given(st.integers(0, 4129), st.integers(1, 255))
def test_a_damaged_report_that_its_own_device_did_not_sign(world: GpuWorld, at: int, change: int) -> None:
    bad = bytearray(world.report())
    bad[at] ^= change
    with pytest.raises((VerificationFailed, BadRequest)):
        world.verify(bytes(bad))


@pytest.mark.parametrize("half", [bytes(96), b"\xff" * 96, bytes(48) + b"\x01" * 48])
def test_signatures_outside_of_the_group(world: GpuWorld, half: bytes) -> None:
    with pytest.raises(VerificationFailed) as caught:
        world.verify(world.report()[:-96] + half)
    assert caught.value.code == "gpu-signature"


# ------------------------------------------------------------------ what a genuine issuer may not have meant


def leaf_with(extension: x509.ExtensionType, *, critical: bool) -> Callable[[pki.Issued, bytes], pki.Issued]:
    """A maker of leaves that carry one more extension."""

    def make(identity: pki.Issued, fwid: bytes) -> pki.Issued:
        plain = pki.make_leaf(identity, fwid)
        certificate = plain.certificate
        builder = x509.CertificateBuilder(
            certificate.issuer,
            certificate.subject,
            public_key(certificate),
            certificate.serial_number,
            pki._NOT_BEFORE,
            pki._NO_END,
            list(certificate.extensions),
        ).add_extension(extension, critical=critical)
        return pki.Issued(builder.sign(identity.key, hashes.SHA384()), plain.key)

    return make


UNREADABLE = x509.UnrecognizedExtension(
    x509.ObjectIdentifier("2.5.29.17"), b"\x30\x02\xa3\x00"
)  # SAN with an x400Address
UNKNOWN = x509.UnrecognizedExtension(x509.ObjectIdentifier("1.2.3.4"), b"\x05\x00")
NAMES = x509.NameConstraints([x509.DNSName("elsewhere.invalid")], None)


@pytest.mark.parametrize("extension", [UNKNOWN, NAMES])
def test_a_critical_extension_that_nobody_judges(extension: x509.ExtensionType) -> None:
    factory = Factory(leaf_with(extension, critical=True))
    with pytest.raises(VerificationFailed) as caught:
        walk(factory.pem(), factory.roots)
    assert caught.value.code == "gpu-chain-broken"
    tolerated = Factory(leaf_with(extension, critical=False))
    assert walk(tolerated.pem(), tolerated.roots).product == "GH100"


def test_an_extension_that_cannot_be_read() -> None:
    def make(identity: pki.Issued, fwid: bytes) -> pki.Issued:
        plain = pki.make_leaf(identity, fwid)
        old = plain.certificate
        kept = [known for known in old.extensions if not isinstance(known.value, x509.SubjectAlternativeName)]
        builder = x509.CertificateBuilder(
            old.issuer, old.subject, public_key(old), old.serial_number, pki._NOT_BEFORE, pki._NO_END, kept
        ).add_extension(UNREADABLE, critical=False)
        return pki.Issued(builder.sign(identity.key, hashes.SHA384()), plain.key)

    with pytest.raises(VerificationFailed) as caught:
        parse_chain(Factory(make).pem())
    assert caught.value.code == "gpu-chain-malformed"


# ------------------------------------------------------------------ firmware ids of Blackwell


def tlv(tag: int, content: bytes) -> bytes:
    return bytes([tag]) + (bytes([len(content)]) if len(content) < 0x80 else bytes([0x81, len(content)])) + content


SHA384_FWID = tlv(0x30, tlv(0x06, bytes.fromhex("608648016503040202")) + tlv(0x04, FWID))
SHA256_FWID = tlv(0x30, tlv(0x06, bytes.fromhex("608648016503040201")) + tlv(0x04, FWID))
VENDOR, MODEL = tlv(0x80, b"NVIDIA"), tlv(0x81, b"GB100 A01 GSP")


def tcb_leaf(der: bytes) -> Callable[[pki.Issued, bytes], pki.Issued]:
    """A maker of leaves that certify their firmware as Blackwell's do."""

    def make(identity: pki.Issued, fwid: bytes) -> pki.Issued:
        plain = pki.make_leaf(identity, fwid)
        old = plain.certificate
        kept = [known for known in old.extensions if known.oid != DICE_FWID]
        builder = x509.CertificateBuilder(
            old.issuer, old.subject, public_key(old), old.serial_number, pki._NOT_BEFORE, pki._NO_END, kept
        ).add_extension(x509.UnrecognizedExtension(DICE_TCB_INFO, der), critical=False)
        return pki.Issued(builder.sign(identity.key, hashes.SHA384()), plain.key)

    return make


@pytest.mark.parametrize("fwids", [SHA384_FWID, SHA384_FWID * 2])
def test_a_firmware_id_in_a_tcb_info(fwids: bytes) -> None:
    der = tlv(0x30, VENDOR + MODEL + tlv(0xA6, fwids))
    assert certified_firmware(parse_chain(Factory(tcb_leaf(der)).pem())) == FWID


@pytest.mark.parametrize(
    "der",
    [
        b"",
        tlv(0x30, b""),
        tlv(0x31, VENDOR + tlv(0xA6, SHA384_FWID)),
        tlv(0x30, VENDOR + tlv(0xA6, SHA384_FWID)) + b"\0",
        tlv(0x30, VENDOR + tlv(0xA6, SHA384_FWID))[:-1],
        tlv(0x30, tlv(0x80, b"OTHERS") + tlv(0xA6, SHA384_FWID)),
        tlv(0x30, VENDOR + VENDOR + tlv(0xA6, SHA384_FWID)),
        tlv(0x30, VENDOR + MODEL),
        tlv(0x30, VENDOR + tlv(0xA6, b"")),
        tlv(0x30, VENDOR + tlv(0xA6, SHA256_FWID)),
        tlv(0x30, VENDOR + tlv(0xA6, SHA384_FWID + SHA256_FWID)),
        tlv(0x30, VENDOR + tlv(0xA6, SHA384_FWID[:-1])),
        b"\x30\x80" + VENDOR + tlv(0xA6, SHA384_FWID) + b"\0\0",
        b"\x30\x84\xff\xff\xff\xff",
    ],
)
def test_a_tcb_info_of_another_form(der: bytes) -> None:
    with pytest.raises(VerificationFailed) as caught:
        certified_firmware(parse_chain(Factory(tcb_leaf(der)).pem()))
    assert caught.value.code == "gpu-device-id"


@pytest.mark.parametrize(("limit", "good"), [(0, False), (1, True), (None, True)])
def test_a_path_longer_than_its_issuer_allows(limit: int | None, good: bool) -> None:
    factory = Factory()
    key = pki._new_key()
    name = pki._name("EMULATED limited provisioner")
    product = factory.product
    builder = pki._builder(name, product.certificate.subject, key.public_key(), product.key.public_key(), 7)
    builder = builder.add_extension(x509.BasicConstraints(ca=True, path_length=limit), critical=True)
    builder = builder.add_extension(pki._usage(key_cert_sign=True), critical=True)
    provisioner = pki.Issued(builder.sign(product.key, hashes.SHA384()), key)
    identity = pki.make_identity(provisioner, b"\x02" * 8)
    pem = factory.pem([pki.make_leaf(identity, FWID), identity, provisioner, product, factory.root])
    if good:
        assert walk(pem, factory.roots).pdi == "02" * 8
        return
    with pytest.raises(VerificationFailed) as caught:
        walk(pem, factory.roots)
    assert caught.value.code == "gpu-chain-broken"


@pytest.mark.parametrize(
    ("first_byte", "code"),
    [
        (0x00, "gpu-device-type"),
        (0x42, "gpu-device-type"),
        (0x80, "gpu-chain-malformed"),
        (0xFF, "gpu-chain-malformed"),
    ],
)
@pytest.mark.filterwarnings("ignore:Parsed a serial number")
def test_an_identity_serial_of_another_kind(world: GpuWorld, first_byte: int, code: str) -> None:
    """0x80 and 0xff make the serial negative, which no certificate's is."""
    ders = [bytearray(der) for der in ders_of(world.rot.chain_pem)]
    serial = bytes([0x02, 0x09, 0x41]) + bytes.fromhex(world.rot.device)  # DER INTEGER, 9 bytes
    at = ders[1].index(serial)
    ders[1][at + 2] = first_byte
    ders[1][at + 3] = 0x80 if first_byte == 0 else ders[1][at + 3]  # a leading zero must be needed in DER
    with pytest.raises(VerificationFailed) as caught:
        identity_of(parse_chain(pem_of([bytes(der) for der in ders])))
    assert caught.value.code == code


def test_a_pdi_with_leading_zeros_keeps_its_length() -> None:
    factory = Factory()
    identity = pki.make_identity(factory.provisioner, bytes(7) + b"\x09")
    pem = factory.pem([pki.make_leaf(identity, FWID), identity, *factory.levels[2:]])
    assert walk(pem, factory.roots).pdi == "0000000000000009"


def test_an_expired_chain_is_not_called_forged() -> None:
    factory = Factory()
    short = factory.leaf.certificate
    builder = x509.CertificateBuilder(
        short.issuer, short.subject, public_key(short), short.serial_number, pki._NOT_BEFORE,
        short.not_valid_before_utc.replace(year=2024), list(short.extensions),
    )  # fmt: skip
    expired = builder.sign(factory.identity.key, hashes.SHA384())
    pem = factory.pem([pki.Issued(expired, factory.leaf.key), *factory.levels[1:]])
    with pytest.raises(VerificationFailed) as caught:
        walk(pem, factory.roots)
    assert caught.value.code == "gpu-chain-expired"
    forged = builder.sign(ecc.private_key(lambda size: b"\x05" * size), hashes.SHA384())
    with pytest.raises(VerificationFailed) as caught:
        walk(factory.pem([pki.Issued(forged, factory.leaf.key), *factory.levels[1:]]), factory.roots)
    assert caught.value.code == "gpu-chain-broken"
