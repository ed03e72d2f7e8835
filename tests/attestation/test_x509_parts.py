"""Names that no certificate may have: refused by every reader with its own error, without a word of the library's in the log."""

from __future__ import annotations

import random
import ssl
import warnings
from collections.abc import Callable
from typing import Any

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import serialization

from shared.attestation.certificates import RevocationList, load_chain
from shared.attestation.cpu_trust import CpuRoots
from shared.attestation.gpu_chain import parse_chain
from shared.attestation.gpu_ocsp import parse_responses
from shared.attestation.gpu_trust import GpuRoots
from shared.attestation.quote import parse_quote
from shared.attestation.snp_certificates import load_certificate, load_crl
from shared.attestation.spdm_requester import _leaf_key
from shared.attestation.x509_parts import BAD_CERTIFICATE, check_names, readable
from shared.errors import GputError
from tests.attestation.cpu_world import Machine
from tests.attestation.gpu_evidence_world import Factory
from tests.attestation.snp_world import crl, good_chip, platform
from tests.attestation.test_gpu_ocsp import answers

COMMON, COUNTRY = b"\x06\x03\x55\x04\x03", b"\x06\x03\x55\x04\x06"
BITS, BMP = 0x03, 0x1E
VERSION_3 = b"\xa0\x03\x02\x01\x02"  # what a serial number follows
MACHINE, FACTORY = Machine("names"), Factory()
Mutation = Callable[[bytes], bytes]


def _one(der: bytes) -> int:
    """Where one of its common names begins, drawn alike in every run."""
    places = [at for at in range(len(der)) if der.startswith(COMMON, at)]
    return random.Random(7).choice(places)


def as_country(der: bytes) -> bytes:
    """A common name becomes a country of more than two letters: the library warns of it, and reads on."""
    at = _one(der)
    return der[:at] + COUNTRY + der[at + len(COUNTRY) :]


def as_tag(tag: int) -> Mutation:
    def mutated(der: bytes) -> bytes:
        at = _one(der) + len(COMMON)
        return der[:at] + bytes([tag]) + der[at + 1 :]

    return mutated


def too_long(der: bytes) -> bytes:
    """A length of a text that does not fit what is there, either: whichever is found first."""
    at = _one(der) + len(COMMON) + 1
    return der[:at] + b"\x41" + der[at + 1 :]


MUTATIONS = {"country": as_country, "bits": as_tag(BITS), "two-byte-text": as_tag(BMP), "long": too_long}


def _pem(ders: list[bytes]) -> bytes:
    return b"".join(ssl.DER_cert_to_PEM_cert(der).encode() for der in ders)


def _ders(pem: bytes) -> list[bytes]:
    loaded = x509.load_pem_x509_certificates(pem)
    return [certificate.public_bytes(serialization.Encoding.DER) for certificate in loaded]


def _spoilt(ders: list[bytes], change: Mutation) -> bytes:
    """The chain as PEM with its second certificate changed."""
    return _pem([ders[0], change(ders[1]), *ders[2:]])


PCK = _ders(parse_quote(MACHINE.raw(bytes(64))).signature.certification.rstrip(b"\0"))
GPU = _ders(FACTORY.pem().encode())
READERS: dict[str, tuple[Callable[[Mutation], Any], str]] = {
    "snp-certificate": (lambda change: load_certificate(change(good_chip().leaf)), "snp-certificate-malformed"),
    "snp-authority": (lambda change: load_certificate(change(platform().ask.der)), "snp-certificate-malformed"),
    "snp-crl": (lambda change: load_crl(change(crl())), "snp-crl-malformed"),
    "pck-chain": (lambda change: load_chain(_spoilt(PCK, change), len(PCK), "chain", "bad-chain"), "bad-chain"),
    "intel-crl": (
        lambda change: RevocationList(
            "list", change(MACHINE.collateral.root_ca_crl), MACHINE.maker.root.certificate, "bad-list"
        ),
        "bad-list",
    ),
    "intel-roots": (lambda change: CpuRoots.load(_pem([change(MACHINE.root_der)])), "bad-roots"),
    "gpu-chain": (lambda change: parse_chain(_spoilt(GPU, change).decode()), "gpu-chain-malformed"),
    "gpu-roots": (lambda change: GpuRoots.load(_pem([change(GPU[-1])])), "bad-roots"),
    "gpu-leaf": (lambda change: _leaf_key([change(GPU[0])]), "leaf-malformed"),
    "ocsp": (lambda change: parse_responses([change(answers("ocsp")[0])]), "gpu-ocsp-malformed"),
}  # fmt: skip


@pytest.mark.parametrize("mutation", MUTATIONS)
@pytest.mark.parametrize("name", READERS)
def test_a_name_that_may_not_be_is_refused_in_the_reader_s_own_words(name: str, mutation: str) -> None:
    read, code = READERS[name]
    read(lambda der: der)  # as it was made it is read
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with pytest.raises(GputError) as refusal:
            read(MUTATIONS[mutation])
    assert refusal.value.code == code


def negative(der: bytes) -> bytes:
    """The serial number of the last certificate in it becomes negative."""
    at = der.rindex(VERSION_3) + len(VERSION_3) + 2
    return der[:at] + b"\x81" + der[at + 1 :]


@pytest.mark.filterwarnings("ignore:Parsed a serial number")  # the library warns already when it loads one
@pytest.mark.parametrize("name", [name for name in READERS if "crl" not in name])
def test_a_serial_number_that_is_not_positive_is_refused(name: str) -> None:
    read, code = READERS[name]
    with pytest.raises(GputError) as refusal:
        read(negative)
    assert refusal.value.code == code


@pytest.mark.filterwarnings("ignore:Parsed a serial number")
def test_serial_number_zero_is_amds_alone() -> None:
    leaf = good_chip().leaf
    with pytest.raises(ValueError, match="not positive"):
        readable([x509.load_der_x509_certificate(leaf)])
    assert load_certificate(leaf).serial is None


def test_what_x520_allows_is_read() -> None:
    for text in (b"\x13\x02US", b"\x0c\x02DE"):
        check_names(COUNTRY + text)
    check_names(COMMON + b"\x0c\x40" + b"x" * 64)
    with pytest.raises(ValueError, match=r"X\.520"):
        check_names(COMMON + b"\x0c\x41" + b"x" * 65)
    with pytest.raises(ValueError, match=r"X\.520"):
        check_names(bytes.fromhex("060b2b0601040182373c020103") + b"\x13\x03USA")


def test_the_library_would_only_warn() -> None:
    """Why names are looked at before the library reads them; should it refuse them itself one day, this says so."""
    spoilt = x509.load_der_x509_certificate(as_country(GPU[0]))
    with pytest.warns(UserWarning, match="length must be"):
        _ = spoilt.issuer, spoilt.subject
    with pytest.raises(BAD_CERTIFICATE):
        readable([spoilt])
