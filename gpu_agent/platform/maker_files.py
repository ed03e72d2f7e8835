"""The emulated CPU maker's files: its keys, the machine it made, the collateral it signs. Knows no guest and no HTTP.

maker/cpu/{root,authority,signer}.pem (0600), certificates.pem     keys of the maker; not copied to where the platform runs
platform/cpu/pck.pem (0600), chain.pem                             the machine
trust/cpu-roots.pem, trust/collateral/emulated.json                what verifiers need
"""

from __future__ import annotations

import secrets

from cryptography import x509
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec

from gpu_agent.platform.collateral_maker import VALID_DAYS, make_collateral
from gpu_agent.platform.files import Installation, read_made, read_private
from gpu_agent.platform.pki import Issuer, Maker, certificate_pem, key_pem, make_maker
from shared.attestation.collateral import Collateral, verify_collateral
from shared.crypto.private_file import replace_public, write_private
from shared.errors import BadRequest, ConfigurationError, VerificationFailed

ISSUERS = ("root", "authority", "signer")
CERTIFICATES = "certificates.pem"
DAY_S = 86_400


def make_cpu(place: Installation, at: float) -> list[str]:
    """The maker and its machine, unless they are there; what was made.

    Raises:
        ConfigurationError: damaged files, or the machine is here without its maker.
    """
    keys = [place.maker / f"{name}.pem" for name in ISSUERS]
    if place.pck_key.exists():
        # Another maker would make another machine, whose evidence nobody believes who trusts this one's roots.
        if missing := [path for path in keys if not path.exists()]:
            raise ConfigurationError(
                f"the machine was made by a maker whose key {missing[0]} is not here", code="installation-file",
                remedy="bring the folder maker/ to where the machine was made, or make a new installation in an empty folder",
            )  # fmt: skip
        return []
    # The machine's private key comes last: while it is absent an interrupted run is done over as a whole.
    for path in keys:
        path.unlink(missing_ok=True)
    maker = make_maker(secrets.token_hex(8), at)
    issuers = (maker.root, maker.authority, maker.signer)
    replace_public(place.maker / CERTIFICATES, b"".join(certificate_pem(issuer.certificate) for issuer in issuers))
    for name, issuer in zip(ISSUERS, issuers, strict=True):
        write_private(place.maker / f"{name}.pem", key_pem(issuer.key))
    machine = maker.machine(at)
    replace_public(place.pck_chain, machine.chain)
    replace_public(place.cpu_roots, certificate_pem(maker.root.certificate))
    write_private(place.pck_key, machine.pck_key)
    return ["CPU roots and quoting keys"]


def renew_collateral(place: Installation, at: float) -> list[str]:
    """Fresh collateral when it is absent, damaged, of another maker, or has less than half its time left; what was made."""
    maker = load_maker(place)
    if _stands(place, maker, at):
        return []
    replace_public(place.collateral, make_collateral(maker, at).document())
    return ["collateral"]


def load_maker(place: Installation) -> Maker:
    """The maker as kept. Raises: ConfigurationError: a file is missing or damaged."""
    folder = place.maker
    try:
        certificates = x509.load_pem_x509_certificates(read_made(folder / CERTIFICATES, "the maker's certificates"))
        keys = [
            serialization.load_pem_private_key(read_private(folder / f"{name}.pem", "the maker's key"), None)
            for name in ISSUERS
        ]
    except (ValueError, TypeError):
        raise _damaged(place) from None
    issuers = [
        Issuer(certificate, key)
        for certificate, key in zip(certificates, keys, strict=False)
        if isinstance(key, ec.EllipticCurvePrivateKey) and certificate.public_key() == key.public_key()
    ]
    if len(issuers) != len(ISSUERS) or len(certificates) != len(ISSUERS):
        raise _damaged(place)
    return Maker(issuers[0], issuers[1], issuers[2])


def _stands(place: Installation, maker: Maker, at: float) -> bool:
    if not place.collateral.exists():
        return False
    try:
        found = verify_collateral(Collateral.parse(place.collateral.read_bytes()), maker.root.certificate)
    except (BadRequest, VerificationFailed):
        return False
    return found.current(at) and found.current(at + VALID_DAYS * DAY_S / 2)


def _damaged(place: Installation) -> ConfigurationError:
    return ConfigurationError(
        f"{place.maker} is damaged: its keys and certificates do not belong together",
        code="installation-file",
        remedy="manufacture the installation anew in an empty folder",
    )
