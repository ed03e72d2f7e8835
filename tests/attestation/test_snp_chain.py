"""Chains that do not hold, leaves that are not AMD's form, revocation: each is refused for what it is."""

from __future__ import annotations

import warnings
from typing import Any

import pytest
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec, padding

from shared.attestation.results import CheckStatus
from shared.attestation.snp_certificates import load_certificate, load_crl, read_leaf
from shared.attestation.snp_chain import verify_snp_chain
from shared.attestation.snp_verifier import (
    ExaminedSnp,
    SnpEndorsements,
    SnpPolicy,
    SnpRoots,
    SnpTrust,
    examine_snp_evidence,
)
from shared.errors import VerificationFailed
from tests.attestation.snp_world import (
    AGREED,
    AT,
    CHIP,
    Authority,
    Chip,
    authority,
    body,
    chip,
    good_chip,
    integer,
    platform,
    signed,
)


def chain_code(leaf: bytes, roots: SnpRoots | None = None, *delivered: Authority) -> str:
    others = [load_certificate(link.der) for link in delivered]
    with pytest.raises(VerificationFailed) as caught:
        verify_snp_chain(read_leaf(load_certificate(leaf)), roots or platform().roots, others)
    return caught.value.code


def examined(
    leaf: Chip, *own: bytes, endorsements: SnpEndorsements | None = None, delivered: tuple[bytes, ...] = ()
) -> Any:
    trust = SnpTrust(platform().roots, {}, SnpPolicy(), tuple(load_crl(item) for item in own))
    given = endorsements or SnpEndorsements((leaf.leaf,), (), delivered)
    found: ExaminedSnp = examine_snp_evidence(signed(body(), leaf.key), given, trust=trust, agreed=AGREED, at=AT)
    return found.examination


def only_root() -> SnpRoots:
    return SnpRoots.load(platform().pem())


# ------------------------------------------------------------------- links


def test_an_issuer_may_come_with_the_evidence_when_a_pinned_root_signed_it() -> None:
    leaf = read_leaf(load_certificate(good_chip().leaf))
    chain = verify_snp_chain(leaf, only_root(), [load_certificate(platform().ask.der)])
    assert [name for name, _ in chain.links] == ["VCEK", "ASK", "ARK"]
    assert chain_code(good_chip().leaf, only_root()) == "snp-chain-incomplete"


def test_a_foreign_root_of_the_same_names_does_not_count() -> None:
    ark = authority("ARK-EMULATED", "ask")  # another key under the pinned root's name
    ask = authority("SEV-EMULATED", "asvk", ark)
    assert chain_code(chip(ask).leaf, only_root(), ask, ark) == "snp-root-unknown"
    self_signed = authority("SEV-EMULATED", "ask")
    assert chain_code(chip(self_signed).leaf, only_root(), self_signed) == "snp-root-unknown"


def test_the_right_issuer_is_found_among_others_of_its_name() -> None:
    impostor = authority("SEV-EMULATED", "asvk", platform().ark, serial=77)
    leaf = read_leaf(load_certificate(good_chip().leaf))
    chain = verify_snp_chain(leaf, only_root(), [load_certificate(impostor.der), load_certificate(platform().ask.der)])
    assert chain.issuer.der == platform().ask.der
    assert chain_code(good_chip().leaf, only_root(), impostor) == "snp-chain-broken"


def test_a_leaf_signed_by_the_root_itself_or_by_another_leaf() -> None:
    assert chain_code(chip(platform().ark).leaf, only_root()) == "snp-chain-incomplete"
    middle = authority("SEV-EMULATED", "asvk", platform().ark, ca=False)
    assert chain_code(chip(middle).leaf, only_root(), middle) == "snp-root-unknown"
    forbidden = authority("SEV-EMULATED", "asvk", platform().ark, usage=False)
    assert chain_code(chip(forbidden).leaf, only_root(), forbidden) == "snp-root-unknown"
    allowed = authority("SEV-EMULATED", "asvk", platform().ark, usage=True)
    verify_snp_chain(read_leaf(load_certificate(chip(allowed).leaf)), only_root(), [load_certificate(allowed.der)])


@pytest.mark.parametrize(
    "other",
    [
        padding.PKCS1v15(),
        padding.PSS(padding.MGF1(hashes.SHA384()), 32),
        padding.PSS(padding.MGF1(hashes.SHA256()), 48),
    ],
)
def test_only_amds_signature_form_counts(other: Any) -> None:
    ask = authority("SEV-EMULATED", "asvk", platform().ark, sign_padding=other)
    assert chain_code(chip(ask).leaf, only_root(), ask) == "snp-root-unknown"


def test_an_issuer_whose_key_is_not_rsa() -> None:
    ask = authority("SEV-EMULATED", "", platform().ark, key=ec.generate_private_key(ec.SECP384R1()))
    assert chain_code(good_chip().leaf, only_root(), ask) == "snp-chain-broken"


def test_the_unsigned_algorithm_must_be_the_signed_one() -> None:
    """Every byte of a certificate is either signed, the signature, or bound to what is signed."""
    raw = good_chip().leaf
    outer = raw.rindex(b"\xa2\x03\x02\x01\x30")  # the salt length behind the signed part
    for changed in (raw[: outer + 4] + b"\x20" + raw[outer + 5 :], raw[:outer] + b"\xa3" + raw[outer + 1 :]):
        with pytest.raises(VerificationFailed) as caught:
            load_certificate(changed)
        assert caught.value.code == "snp-certificate-malformed"


def test_kind_and_issuer_belong_together() -> None:
    assert chain_code(chip(platform().ask, kind="VLEK").leaf) == "snp-chain-broken"
    assert chain_code(chip(platform().asvk, kind="VCEK").leaf) == "snp-chain-broken"
    assert chain_code(platform().chip(ca=True).leaf) == "snp-chain-broken"


# ------------------------------------------------------------------ leaves


def test_serial_zero_is_loaded_without_a_warning_and_is_no_number() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        certificate = load_certificate(good_chip().leaf)
    assert certificate.serial is None
    assert certificate.der == good_chip().leaf
    assert load_certificate(platform().chip(serial=5).leaf).serial == 5


@pytest.mark.parametrize("serial", [b"\x81", b"\x80"])
def test_a_negative_serial_is_refused_before_the_library_warns(serial: bytes) -> None:
    raw = good_chip().leaf
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with pytest.raises(VerificationFailed) as caught:
            load_certificate(raw[:15] + serial + raw[16:])
    assert caught.value.code == "snp-certificate-malformed"


@pytest.mark.parametrize(
    "changes",
    [
        {"common": "SEV-XYZ"},
        {"curve": ec.SECP256R1()},
        *({"extensions": {arc: None}} for arc in ("2", "3.1", "3.2", "3.3", "3.8", "4")),
        {"extensions": {"2": b"\x16\x05Paris"}},
        {"extensions": {"2": b"\x16\x06Milan"}},
        {"extensions": {"3.1": b"\x02\x01\xff"}},
        {"extensions": {"3.1": b"\x02\x02\x01\x00"}},
        {"extensions": {"3.1": b"\x02\x02\x00\x04"}},
        {"extensions": {"3.1": b"\x04\x01\x04"}},
        {"extensions": {"3.4": integer(1)}},
        {"extensions": {"3.9": integer(1)}},
        {"extensions": {"4": b"\xc1" * 63}},
        {"extensions": {"4": b"\xc1" * 8}},
        {"extensions": {"4": bytes(64)}},
        {"extensions": {"4": b"\x04\x41" + b"\xc1" * 64}},
        {"extensions": {"5": b"\x16\x01x"}},
        {"kind": "VLEK", "extensions": {"5": None}},
        {"kind": "VLEK", "extensions": {"5": b"\x16\x01\xff"}},
        {"kind": "VLEK", "extensions": {"4": CHIP["Milan"]}},
        {"product": "Turin", "extensions": {"3.9": None}},
        {"product": "Turin", "extensions": {"4": CHIP["Milan"]}},
    ],
    ids=lambda changes: "another curve" if "curve" in changes else str(changes),
)
def test_a_leaf_that_is_not_amds_form(changes: dict[str, Any]) -> None:
    leaf = platform().chip(**changes)
    assert chain_code(leaf.leaf) == "snp-leaf-malformed"
    found = examined(leaf)
    assert found.find("leaf").status is CheckStatus.FAIL
    assert found.find("signature").status is CheckStatus.NOT_CHECKED


PEM_BEGIN, PEM_END = b"-----BEGIN CERTIFICATE-----\n", b"\n-----END CERTIFICATE-----"


@pytest.mark.parametrize(
    "raw",
    [
        b"",
        b"\x30\x00",
        good_chip().leaf[:-1],
        good_chip().leaf + b"\0",
        bytes(9000),
        PEM_BEGIN + b"!!" + PEM_END,
        PEM_BEGIN + b"A" + PEM_END,
        platform().pem(platform().ask),
        platform().chip(critical="1.2.3.4").leaf,
    ],
    ids=range(9),
)
def test_what_is_no_certificate(raw: bytes) -> None:
    with pytest.raises(VerificationFailed) as caught:
        load_certificate(raw)
    assert caught.value.code == "snp-certificate-malformed"


def test_too_many_delivered_certificates() -> None:
    endorsements = SnpEndorsements((good_chip().leaf,), (platform().ask.der,) * 9)
    found = examined(good_chip(), endorsements=endorsements)
    assert found.find("certificate-chain").status is CheckStatus.FAIL
