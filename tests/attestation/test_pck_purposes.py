"""What certificates of a CPU maker may be used for: unknown critical extensions and other purposes, in the chain and in collateral."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.x509.oid import ExtendedKeyUsageOID

from gpu_agent.platform.pki import Issuer
from shared.attestation.collateral import verify_collateral
from shared.attestation.pck import read_pck_chain
from shared.errors import VerificationFailed
from tests.attestation.test_cpu_verifier import MACHINE

MAKER = MACHINE.maker
LEAF, AUTHORITY, ROOT = x509.load_pem_x509_certificates(MACHINE.keys.chain)[:3]
Change = Callable[[x509.Certificate], dict[x509.ObjectIdentifier, tuple[x509.ExtensionType, bool]]]


def extension(value: x509.ExtensionType, *, critical: bool = True) -> Change:
    return lambda _certificate: {value.oid: (value, critical)}


def usage(**only: bool) -> Change:
    names = (
        "digital_signature", "content_commitment", "key_encipherment", "data_encipherment", "key_agreement",
        "key_cert_sign", "crl_sign", "encipher_only", "decipher_only",
    )  # fmt: skip
    return extension(x509.KeyUsage(**{name: only.get(name, False) for name in names}))


UNKNOWN = extension(x509.UnrecognizedExtension(x509.ObjectIdentifier("1.2.3.4"), b"\x05\0"))
CONSTRAINED = extension(x509.NameConstraints(None, [x509.DirectoryName(LEAF.subject)]))
SERVERS = extension(x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH]))
AGREES = usage(key_agreement=True)


def issued_again(certificate: x509.Certificate, issuer: Issuer, change: Change) -> x509.Certificate:
    """The same certificate of the same key by its own issuer, with other extensions."""
    extensions = {known.oid: (known.value, known.critical) for known in certificate.extensions} | change(certificate)
    builder = x509.CertificateBuilder(
        certificate.issuer, certificate.subject, certificate.public_key(), certificate.serial_number,
        certificate.not_valid_before_utc, certificate.not_valid_after_utc,
    )  # fmt: skip
    for value, critical in extensions.values():
        builder = builder.add_extension(value, critical)
    return builder.sign(issuer.key, hashes.SHA256())


def pem(*certificates: x509.Certificate) -> bytes:
    return b"".join(each.public_bytes(serialization.Encoding.PEM) for each in certificates)


def code(leaf: x509.Certificate = LEAF, authority: x509.Certificate = AUTHORITY) -> str:
    try:
        read_pck_chain(pem(leaf, authority, ROOT), MACHINE.roots.certificates)
    except VerificationFailed as error:
        return error.code
    return "accepted"


def nothing(_certificate: x509.Certificate) -> dict[x509.ObjectIdentifier, tuple[x509.ExtensionType, bool]]:
    return {}


def test_the_same_certificates_issued_again_are_accepted() -> None:
    assert (
        code(issued_again(LEAF, MAKER.authority, nothing), issued_again(AUTHORITY, MAKER.root, nothing)) == "accepted"
    )


@pytest.mark.parametrize("change", [UNKNOWN, SERVERS, AGREES], ids=["unknown", "servers", "key agreement"])
def test_a_leaf_that_is_for_something_else(change: Change) -> None:
    assert code(issued_again(LEAF, MAKER.authority, change)) == "quote-chain-broken"


@pytest.mark.parametrize("change", [UNKNOWN, CONSTRAINED], ids=["unknown", "name constraints"])
def test_an_authority_under_conditions_that_nobody_here_judges(change: Change) -> None:
    assert code(authority=issued_again(AUTHORITY, MAKER.root, change)) == "quote-chain-broken"


@pytest.mark.parametrize("change", [UNKNOWN, SERVERS, AGREES], ids=["unknown", "servers", "key agreement"])
@pytest.mark.parametrize("part", ["tcb_info_issuer_chain", "qe_identity_issuer_chain"])
def test_a_signer_of_collateral_that_is_for_something_else(part: str, change: Change) -> None:
    signer, root = x509.load_pem_x509_certificates(getattr(MACHINE.collateral, part).encode())
    for changed in (nothing, change):
        chain = pem(issued_again(signer, MAKER.root, changed), root).decode()
        bundle = replace(MACHINE.collateral, **{part: chain})
        if changed is nothing:
            verify_collateral(bundle, MAKER.root.certificate)
        else:
            with pytest.raises(VerificationFailed) as caught:
                verify_collateral(bundle, MAKER.root.certificate)
            assert caught.value.code == "collateral-broken"


@pytest.mark.parametrize("may", [True, False])
def test_lists_are_signed_by_who_may_sign_lists(may: bool) -> None:
    authority = issued_again(AUTHORITY, MAKER.root, usage(key_cert_sign=True, crl_sign=may))
    bundle = replace(MACHINE.collateral, pck_crl_issuer_chain=pem(authority, ROOT).decode())
    if may:
        verify_collateral(bundle, MAKER.root.certificate)
    else:
        with pytest.raises(VerificationFailed) as caught:
            verify_collateral(bundle, MAKER.root.certificate)
        assert caught.value.code == "collateral-broken"
