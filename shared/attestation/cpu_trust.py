"""What a verifier of CPU evidence is configured with: pinned roots, reference values, policy. Knows no quote.

A root's set follows from the root itself, never from evidence: Intel's by fingerprint, an emulated one by its own subject name.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Literal

from cryptography import x509
from pydantic import TypeAdapter, ValidationError

from shared.attestation.collateral_store import CollateralStore
from shared.attestation.pck import certificate_fingerprint
from shared.attestation.policy_id import Identified
from shared.attestation.x509_parts import BAD_CERTIFICATE, readable
from shared.canonical import json_value
from shared.claims import Claim
from shared.claims.manifest import EvidencePolicy
from shared.claims.program import HexSha384
from shared.claims.snp_rules import ANY_SNP, SnpRules
from shared.claims.tdx_policy import TdxPolicy
from shared.errors import ConfigurationError, GputError
from shared.names import CvmRole

if TYPE_CHECKING:  # SEV-SNP's trust stands on this module
    from shared.attestation.snp_trust import SnpTrust

RootSet = Literal["EMULATED", "INTEL"]
INTEL_SGX_ROOT = "44a0196b2b99f889b8e149e95b807a350e7424964399e885a7cbb8ccfab674d3"  # SHA-256 of the DER
EMULATED_MARK = "EMULATED"
_PRODUCTION_TDX = TdxPolicy()
RESTORE_TRUST = "restore the trust folder that manufacturing made"


@dataclass(frozen=True)
class CpuRoots:
    """Pinned root certificates by SHA-256 fingerprint of their DER, and the set that each belongs to."""

    certificates: Mapping[str, x509.Certificate]
    sets: Mapping[str, RootSet]

    @classmethod
    def load(cls, source: bytes | Path) -> CpuRoots:
        """Roots from PEM. Raises: ConfigurationError: no certificate, or one that is neither Intel's nor named EMULATED."""
        pem = read_trust_file(source, "CPU roots")
        try:
            loaded = readable(x509.load_pem_x509_certificates(pem))
        except BAD_CERTIFICATE:
            raise ConfigurationError(
                f"the CPU roots{in_file(source)} are not PEM certificates", code="bad-roots", remedy=RESTORE_TRUST
            ) from None
        certificates = {certificate_fingerprint(certificate): certificate for certificate in loaded}
        sets = {fingerprint: _root_set(fingerprint, root) for fingerprint, root in certificates.items()}
        return cls(MappingProxyType(certificates), MappingProxyType(sets))


def _root_set(fingerprint: str, root: x509.Certificate) -> RootSet:
    if fingerprint == INTEL_SGX_ROOT:
        return "INTEL"
    # In any case of letters, as for SEV-SNP: to take more for emulated than calls itself so exactly errs on the safe side (law L10).
    if EMULATED_MARK in root.subject.rfc4514_string().upper():
        return "EMULATED"
    raise ConfigurationError(
        f"root {fingerprint} is neither Intel's nor named {EMULATED_MARK}",
        code="bad-roots",
        remedy="remove it from the trust folder",
    )


class CvmProfile(Claim):
    """Reference values that must match together; an absent RTMR is not compared. SHA-384, hex."""

    mr_td: HexSha384
    rtmr0: HexSha384 | None = None
    rtmr1: HexSha384 | None = None
    rtmr2: HexSha384 | None = None
    rtmr3: HexSha384 | None = None

    @property
    def registers(self) -> tuple[str | None, str | None, str | None, str | None]:
        """RTMR 0 to 3, None where any value counts."""
        return self.rtmr0, self.rtmr1, self.rtmr2, self.rtmr3

    def matches(self, mr_td: str, rtmrs: tuple[str, str, str, str]) -> bool:
        """Whether a quote's registers are this profile's."""
        return self.mr_td == mr_td and all(want in (None, got) for want, got in zip(self.registers, rtmrs, strict=True))


_CVMS: TypeAdapter[dict[CvmRole, CvmProfile | tuple[CvmProfile, ...]]] = TypeAdapter(
    dict[CvmRole, CvmProfile | tuple[CvmProfile, ...]]
)


@dataclass(frozen=True)
class CpuReference:
    """Accepted profiles by role: alternatives, each matching as a whole."""

    roles: Mapping[str, tuple[CvmProfile, ...]]

    @classmethod
    def load(cls, source: bytes | Path) -> CpuReference:
        """From reference.json's `cvms`: role -> one profile or a list. Raises: ConfigurationError."""
        try:
            value = json_value(read_trust_file(source, "reference values"))
            parsed = _CVMS.validate_python(value["cvms"] if isinstance(value, dict) else None)
        except (GputError, KeyError, ValidationError) as error:
            if isinstance(error, ConfigurationError):
                raise
            raise ConfigurationError(
                f"the reference values{in_file(source)} have no valid `cvms`",
                code="bad-reference",
                remedy=RESTORE_TRUST,
            ) from None
        roles: dict[str, tuple[CvmProfile, ...]] = {
            role: profiles if isinstance(profiles, tuple) else (profiles,) for role, profiles in parsed.items()
        }
        return cls(MappingProxyType(roles))

    def profiles(self, role: CvmRole) -> tuple[CvmProfile, ...]:
        """Accepted profiles of a role; empty means none is accepted."""
        return self.roles.get(role, ())


@dataclass(frozen=True)
class CpuPolicy(Identified):
    """What is believed of a peer's CPU. The defaults are those for production: hardware roots, nothing emulated.

    Attributes:
        roots: root sets that count.
        allow_emulated: this verifier's own switch; "EMULATED" needs both (law L10).
        measurements: agreed MRTDs (hex); when given they replace the reference values' list, whose RTMRs still hold.
        platforms: this verifier's own allow-list of platform ids (hex); empty means any machine that `tdx` allows.
        tdx, snp: what the parties agreed on for TDX platforms, and for SEV-SNP guests.
    """

    roots: tuple[str, ...] = ("INTEL", "AMD")
    allow_emulated: bool = False
    measurements: tuple[str, ...] = ()
    platforms: frozenset[str] = frozenset()
    tdx: TdxPolicy = _PRODUCTION_TDX
    snp: SnpRules = ANY_SNP

    @classmethod
    def of(cls, agreed: EvidencePolicy, *, allow_emulated: bool, platforms: frozenset[str] = frozenset()) -> CpuPolicy:
        """The manifest's policy under this verifier's own configuration."""
        return cls(agreed.roots, allow_emulated, agreed.measurements, platforms, agreed.tdx, agreed.snp or ANY_SNP)

    def accepted(self, profiles: tuple[CvmProfile, ...]) -> tuple[CvmProfile, ...]:
        """Profiles that count: the reference values', or the agreed measurements with the RTMRs known for them."""
        if not self.measurements:
            return profiles
        known = tuple(profile for profile in profiles if profile.mr_td in self.measurements)
        named = {profile.mr_td for profile in known}
        return known + tuple(CvmProfile(mr_td=mr_td) for mr_td in self.measurements if mr_td not in named)


@dataclass(frozen=True)
class CpuTrust:
    """What a verifier needs to judge a peer's CPU evidence.

    Without `collateral` only what the peer sent along is used; without `snp`, SEV-SNP evidence is refused.
    """

    roots: CpuRoots
    reference: CpuReference
    policy: CpuPolicy
    collateral: CollateralStore | None = None
    snp: SnpTrust | None = None


def in_file(source: bytes | Path) -> str:
    """Where trust material was read from, for a message; nothing for bytes."""
    return f" in {source}" if isinstance(source, Path) else ""


def read_trust_file(source: bytes | Path, what: str) -> bytes:
    """Bytes as given, or a file's. Raises: ConfigurationError `trust-file`."""
    if isinstance(source, bytes):
        return source
    try:
        return source.read_bytes()
    except OSError as error:
        raise ConfigurationError(
            f"{what}: {source} cannot be read: {error.strerror}",
            code="trust-file",
            remedy="point trust_dir at the folder that manufacturing made",
        ) from None
