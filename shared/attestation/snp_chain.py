"""The chain of an SEV-SNP report: leaf ← ASK or ASVK ← a pinned ARK; validity and revocation apart from it. Knows no report, no policy.

Source: AMD 57230. Every signature is RSASSA-PSS with RSA-4096, SHA-384 and a salt of 48 bytes; a VCEK is issued by the ASK ("SEV-…"),
a VLEK by the ASVK ("SEV-VLEK-…"). A root delivered with evidence is never used: only the configured ones count.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Final

from cryptography import x509
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import padding, rsa

from shared.attestation.results import Absent, Expired
from shared.attestation.snp_certificates import AmdCertificate, Leaf
from shared.attestation.snp_report import SigningKey
from shared.attestation.snp_trust import AMD_ROOTS, SnpRoots
from shared.attestation.x509_parts import BAD_CERTIFICATE
from shared.errors import VerificationFailed

RSA_BITS: Final = 4096
SALT_BYTES: Final = 48
ASVK_PREFIX: Final = "SEV-VLEK-"
MAX_CANDIDATES: Final = 16
_PSS = padding.PSS(padding.MGF1(hashes.SHA384()), SALT_BYTES)


@dataclass(frozen=True)
class SnpChain:
    """A verified chain: the leaf, its issuer (ASK or ASVK) and the pinned root (ARK)."""

    leaf: Leaf
    issuer: AmdCertificate
    root: AmdCertificate

    @property
    def links(self) -> tuple[tuple[str, AmdCertificate], ...]:
        """Names for people, leaf first."""
        vlek = self.leaf.kind is SigningKey.VLEK
        return (
            (self.leaf.kind.name, self.leaf.certificate),
            ("ASVK" if vlek else "ASK", self.issuer),
            ("ARK", self.root),
        )


def verify_snp_chain(leaf: Leaf, roots: SnpRoots, delivered: Sequence[AmdCertificate] = ()) -> SnpChain:
    """Find and verify the way from a leaf to a pinned root. Times and revocation are judged apart.

    Args:
        delivered: further certificates that came with the evidence; an issuer among them counts when a pinned root signed it.

    Raises:
        VerificationFailed: `snp-chain-incomplete`, `snp-root-unknown`, `snp-chain-broken`, `snp-certificate-malformed`.
    """
    name = leaf.certificate.parsed.issuer
    named = [c for c in (*roots.intermediates, *delivered) if c.parsed.subject == name][:MAX_CANDIDATES]
    if not named:
        raise VerificationFailed(
            "the issuer of the leaf was neither delivered nor configured",
            code="snp-chain-incomplete",
            expected=name.rfc4514_string(),
            got=", ".join(sorted({c.subject for c in (*roots.intermediates, *delivered)})) or "no certificate",
            remedy="check the product and the root set; add the ASK or ASVK to the trust folder's snp-roots.pem",
        )
    # An issuer's key is used only after a pinned root vouched for it.
    vouched = [(issuer, root) for issuer in named if (root := _root_of(issuer, roots)) is not None]
    if not vouched:
        raise VerificationFailed(
            "the leaf's issuer was not issued by a configured root",
            code="snp-root-unknown",
            expected=", ".join(sorted(roots.certificates)) or "no root is configured",
            got=", ".join(sorted({c.parsed.issuer.rfc4514_string() for c in named})),
            remedy="check that the evidence comes from the maker or installation whose root is in the trust folder",
        )
    found = next(((issuer, root) for issuer, root in vouched if _issued(leaf.certificate, issuer)), None)
    if found is None:
        raise _broken("the leaf's signature is not by its issuer")
    _check_kind(leaf, *found)
    return SnpChain(leaf, *found)


def check_validity(chain: SnpChain, at: float) -> None:
    """Everything valid at `at` (seconds since 1970). Raises: Expired `snp-chain-expired`."""
    moment = datetime.fromtimestamp(at, UTC)
    for name, link in chain.links:
        start, end = link.parsed.not_valid_before_utc, link.parsed.not_valid_after_utc
        if not start <= moment <= end:
            raise Expired(
                f"the {name} is not valid at the verifier's time",
                code="snp-chain-expired",
                expected=f"{start:%Y-%m-%d} to {end:%Y-%m-%d}",
                got=f"{moment:%Y-%m-%d %H:%M:%S}",
                remedy="fetch a fresh leaf from the key distribution service" if link is chain.leaf.certificate else "",
            )


def check_revocation(
    chain: SnpChain,
    own: Sequence[x509.CertificateRevocationList],
    delivered: Sequence[x509.CertificateRevocationList],
    at: float,
) -> None:
    """Judge the chain by lists that name its root as issuer: every one must be the root's, one at least must not have ended at `at`.

    The lists name intermediates; a leaf with serial number 0, which most real ones have, is named by none. A list that is
    out of date still revokes. One that was issued after `at` knows more, not less: evidence of earlier is judged at its own time,
    by lists that were fetched since.

    Args:
        own: the verifier's. Where all have ended nobody renews them, which is refused whatever the policy leaves open.
        delivered: came with the evidence. What has ended could as well have been left out, so it counts as none.

    Raises:
        VerificationFailed: `snp-crl-signature`, `snp-revoked`. Expired: `snp-crl-expired`. Absent: `snp-no-crl`.
    """
    moment = datetime.fromtimestamp(at, UTC)
    for crl in (*own, *delivered):
        _check_list(chain, crl)
    if any(moment <= _end(crl) for crl in (*own, *delivered)):
        return
    if own:
        last = max(own, key=_end)
        raise Expired(
            "no revocation list of the root is valid at the verifier's time",
            code="snp-crl-expired",
            expected=f"{last.last_update_utc:%Y-%m-%d} to {_end(last):%Y-%m-%d}",
            got=f"{moment:%Y-%m-%d}",
            remedy="fetch the list anew into the trust folder's snp-crls, where it counts at once",
        )
    raise Absent(
        "no revocation list of this root is at hand" + (", but one that has ended" if delivered else ""),
        code="snp-no-crl",
        remedy="put AMD's list into the trust folder's snp-crls, where it counts at once",
    )


def _check_list(chain: SnpChain, crl: x509.CertificateRevocationList) -> None:
    """Raises: VerificationFailed `snp-crl-signature`, `snp-revoked`."""
    if not _verifies(chain.root, crl, crl.tbs_certlist_bytes):
        raise VerificationFailed("the revocation list is not signed by the chain's root", code="snp-crl-signature")
    for name, link in chain.links:
        if link.serial is not None and crl.get_revoked_certificate_by_serial_number(link.serial) is not None:
            raise VerificationFailed(f"the {name} was revoked by its maker", code="snp-revoked", got=link.subject)


def _end(crl: x509.CertificateRevocationList) -> datetime:
    return crl.next_update_utc or crl.last_update_utc


def _root_of(issuer: AmdCertificate, roots: SnpRoots) -> AmdCertificate | None:
    if issuer.self_issued or not _is_authority(issuer):
        return None
    named = [root for root in roots.certificates.values() if root.parsed.subject == issuer.parsed.issuer]
    return next((root for root in named if _is_authority(root) and _issued(issuer, root)), None)


def _check_kind(leaf: Leaf, issuer: AmdCertificate, root: AmdCertificate) -> None:
    if issuer.common_name.startswith(ASVK_PREFIX) != (leaf.kind is SigningKey.VLEK):
        raise _broken(f"a {leaf.kind.name} is not issued by {issuer.common_name}")
    if any(
        isinstance(extension.value, x509.BasicConstraints) and extension.value.ca
        for extension in leaf.certificate.extensions
    ):
        raise _broken("the leaf is a certificate authority")
    if AMD_ROOTS.get(root.fingerprint, leaf.product) != leaf.product:
        raise _broken(f"a leaf of {leaf.product} does not stand on {root.common_name}")


def _is_authority(certificate: AmdCertificate) -> bool:
    values = {type(extension.value): extension.value for extension in certificate.extensions}
    basic, usage = values.get(x509.BasicConstraints), values.get(x509.KeyUsage)
    signs = usage is None or (isinstance(usage, x509.KeyUsage) and usage.key_cert_sign)
    return isinstance(basic, x509.BasicConstraints) and basic.ca and signs


def _issued(certificate: AmdCertificate, issuer: AmdCertificate) -> bool:
    """Whether `issuer` signed it, in AMD's one way."""
    return _verifies(issuer, certificate.parsed, certificate.signed)


def _verifies(
    issuer: AmdCertificate, claimed: x509.Certificate | x509.CertificateRevocationList, signed: bytes
) -> bool:
    try:
        if claimed.signature_algorithm_parameters != _PSS or not isinstance(
            claimed.signature_hash_algorithm, hashes.SHA384
        ):
            return False
        key = issuer.parsed.public_key()
        if not isinstance(key, rsa.RSAPublicKey) or key.key_size != RSA_BITS:
            return False
        key.verify(claimed.signature, signed, _PSS, hashes.SHA384())
    except (InvalidSignature, *BAD_CERTIFICATE):
        return False
    return True


def _broken(why: str) -> VerificationFailed:
    return VerificationFailed(why, code="snp-chain-broken")
