"""What a verifier of SEV-SNP evidence is configured with: pinned roots, reference values, policy. Knows no report.

A root's set follows from the root itself, never from evidence: AMD's by fingerprint, an emulated one by its own subject name. In the
trust folder: `snp-roots.pem` (roots, and the ASKs and ASVKs known beforehand), `snp-crls/` (revocation lists, DER; read at each use),
and in `reference.json` the key "snp": {"profiles": {role: profile or list}, "policy": {…}}.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from types import MappingProxyType
from typing import Annotated, Literal

from cryptography.x509 import CertificateRevocationList
from pydantic import Field, TypeAdapter, ValidationError

from shared.attestation.cpu_trust import EMULATED_MARK, RESTORE_TRUST, in_file, read_trust_file
from shared.attestation.snp_certificates import AmdCertificate, load_certificate, load_crl, pem_certificates
from shared.attestation.snp_report import SnpReport
from shared.canonical import json_value
from shared.claims import Claim
from shared.claims.program import HexSha256, HexSha384
from shared.claims.snp_rules import Product, SnpRules
from shared.errors import BadRequest, ConfigurationError, Unavailable, VerificationFailed
from shared.names import CvmRole

SnpRootSet = Literal["EMULATED", "AMD"]
AMD_ROOTS: Mapping[str, Product] = MappingProxyType(
    {  # SHA-256 of the ARK's DER
        "69d063b45344d26a2e94e1f4210de49ef555308287d4c174445c95639a540bcd": "Milan",
        "4c6598d19c18719c5dfd4a7d335f674e5bfe1d8f800cea2cf270c10d103db2f1": "Genoa",
        "1f084161a44bb6d93778a904877d4819cafa5d05ef4193b2ded9dd9c73dd3f6a": "Turin",
    }
)
ROOTS_FILE, CRL_FOLDER, REFERENCE_FILE = "snp-roots.pem", "snp-crls", "reference.json"
Hex16 = Annotated[str, Field(pattern=r"^[0-9a-f]{32}$")]


@dataclass(frozen=True)
class SnpRoots:
    """Pinned ARKs by SHA-256 fingerprint, the set of each, and intermediates that need not come with the evidence."""

    certificates: Mapping[str, AmdCertificate]
    sets: Mapping[str, SnpRootSet]
    intermediates: tuple[AmdCertificate, ...] = ()

    @classmethod
    def load(cls, source: bytes | Path) -> SnpRoots:
        """From PEM. Raises: ConfigurationError: no root, an unreadable one, or one that is neither AMD's nor named EMULATED."""
        pem = read_trust_file(source, "SEV-SNP roots")
        try:
            loaded = [load_certificate(der) for der in pem_certificates(pem)]
        except VerificationFailed as error:
            raise _bad_roots(f"the SEV-SNP roots{in_file(source)} are unusable: {error.detail}") from None
        roots = {certificate.fingerprint: certificate for certificate in loaded if certificate.self_issued}
        if not roots:
            raise _bad_roots(f"the SEV-SNP roots{in_file(source)} hold no root certificate")
        sets = {fingerprint: _root_set(root) for fingerprint, root in roots.items()}
        others = tuple(certificate for certificate in loaded if not certificate.self_issued)
        return cls(MappingProxyType(roots), MappingProxyType(sets), others)


def _root_set(root: AmdCertificate) -> SnpRootSet:
    if root.fingerprint in AMD_ROOTS:
        return "AMD"
    # In any case of letters: to take more for emulated than calls itself so exactly errs on the safe side (law L10).
    if EMULATED_MARK in root.subject.upper():
        return "EMULATED"
    raise _bad_roots(f"root {root.fingerprint} is neither AMD's nor named {EMULATED_MARK}")


def _bad_roots(why: str) -> ConfigurationError:
    return ConfigurationError(why, code="bad-roots", remedy=RESTORE_TRUST)


class SnpProfile(Claim):
    """Reference values that must match together; an absent one is not compared. `guest_svn` is the least accepted."""

    measurement: HexSha384
    host_data: HexSha256 | None = None
    family_id: Hex16 | None = None
    image_id: Hex16 | None = None
    id_key_digest: HexSha384 | None = None
    author_key_digest: HexSha384 | None = None
    guest_svn: int = Field(default=0, ge=0, lt=1 << 32)

    def mismatches(self, report: SnpReport) -> tuple[str, ...]:
        """Names of the values that differ; none: the profile matches as a whole."""
        wanted = self.model_dump(exclude={"guest_svn"}, exclude_none=True)
        differ = tuple(name for name, value in wanted.items() if getattr(report, name).hex() != value)
        return differ if report.guest_svn >= self.guest_svn else (*differ, "guest_svn")


class SnpPolicy(SnpRules):
    """What this verifier accepts of an SEV-SNP guest beyond genuineness, whatever parties agree on."""

    max_vmpl: int = Field(
        default=1,
        ge=0,
        le=3,
        description="least privileged level (VMPL) that a report may speak for; 2 or 3 where an SVSM beneath the guest is meant",
    )
    id_key_digests: tuple[HexSha384, ...] = Field(default=(), description="empty: any, or none")
    author_key_digests: tuple[HexSha384, ...] = Field(default=(), description="empty: any, or none")
    require_crl: bool = Field(default=False, description="refuse where no revocation list of the root is at hand")


DEFAULT_POLICY = SnpPolicy()
_PROFILES: TypeAdapter[dict[CvmRole, SnpProfile | tuple[SnpProfile, ...]]] = TypeAdapter(
    dict[CvmRole, SnpProfile | tuple[SnpProfile, ...]]
)


@dataclass(frozen=True)
class SnpTrust:
    """Everything a verifier is configured with.

    `profiles` by role: alternatives, each matching as a whole. `crls`: lists that were given; `crl_folder`: where further ones lie, which
    are renewed while a service runs.
    """

    roots: SnpRoots
    profiles: Mapping[str, tuple[SnpProfile, ...]]
    policy: SnpPolicy = DEFAULT_POLICY
    crls: tuple[CertificateRevocationList, ...] = ()
    crl_folder: Path | None = None

    @classmethod
    def load(cls, folder: Path) -> SnpTrust | None:
        """From a trust folder; None where it has no `snp-roots.pem`: SEV-SNP evidence is then refused, not accepted.

        Raises:
            ConfigurationError: a file is unreadable or not the documented form.
        """
        if not (folder / ROOTS_FILE).exists():
            return None
        roots = SnpRoots.load(folder / ROOTS_FILE)
        profiles, policy = _load_reference(folder / REFERENCE_FILE)
        trust = cls(roots, profiles, policy, crl_folder=folder / CRL_FOLDER)
        try:
            trust.lists()
        except Unavailable as error:  # said at start, not first when a peer comes
            raise ConfigurationError(
                f"{trust.crl_folder}: {error.detail}", code="bad-crl", remedy=error.remedy
            ) from None
        return trust

    def lists(self) -> tuple[CertificateRevocationList, ...]:
        """The given ones and what lies in the folder now, read each time so that a renewed list counts at once.

        Raises:
            Unavailable: `snp-crl-malformed`: one cannot be read, and without it nobody knows whom it revokes. It may just be written; no
                peer's fault, and no verdict on its evidence.
        """
        return (*self.crls, *(_read_list(path) for path in self._files()))

    def _files(self) -> list[Path]:
        return sorted(self.crl_folder.glob("*.crl")) if self.crl_folder is not None else []

    def knowing(self, crl: bytes) -> SnpTrust:
        """The same with one more revocation list (DER). Raises: VerificationFailed `snp-crl-malformed`."""
        return replace(self, crls=(*self.crls, load_crl(crl)))

    def accepted(self, role: CvmRole, agreed: tuple[str, ...]) -> tuple[SnpProfile, ...]:
        """Profiles that count for a role; agreed measurements replace the list, with what is known of each kept."""
        known = self.profiles.get(role, ())
        if not agreed:
            return known
        kept = tuple(profile for profile in known if profile.measurement in agreed)
        named = {profile.measurement for profile in kept}
        return kept + tuple(SnpProfile(measurement=value) for value in agreed if value not in named)


def _read_list(path: Path) -> CertificateRevocationList:
    try:
        return load_crl(path.read_bytes())
    except OSError as error:
        why = f"it cannot be read: {error.strerror}"
    except VerificationFailed as error:
        why = error.detail
    raise Unavailable(
        f"the revocation list {path.name} in the trust folder cannot be used: {why}",
        code="snp-crl-malformed",
        remedy="fetch it anew as DER, write it beside its place and move it there, or remove it",
    )


def _load_reference(path: Path) -> tuple[Mapping[str, tuple[SnpProfile, ...]], SnpPolicy]:
    try:
        value = json_value(read_trust_file(path, "reference values"))
        part = value.get("snp", {}) if isinstance(value, dict) else None
        if not isinstance(part, dict) or not part.keys() <= {"profiles", "policy"}:
            raise TypeError
        parsed = _PROFILES.validate_python(part.get("profiles", {}))
        policy = SnpPolicy.model_validate(part.get("policy", {}))
    except (BadRequest, TypeError, ValidationError) as error:
        why = (
            error.errors(include_input=False)[0]["msg"]
            if isinstance(error, ValidationError)
            else "not the documented form"
        )
        raise ConfigurationError(
            f"the SEV-SNP reference values in {path} are malformed: {why}", code="bad-reference", remedy=RESTORE_TRUST
        ) from None
    profiles: dict[str, tuple[SnpProfile, ...]] = {
        role: found if isinstance(found, tuple) else (found,) for role, found in parsed.items()
    }
    return MappingProxyType(profiles), policy
