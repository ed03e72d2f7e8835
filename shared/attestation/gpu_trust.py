"""What a verifier of GPU evidence is configured with: pinned roots and reference values. Knows no report.

A root's set follows from the root itself, never from evidence: NVIDIA's by fingerprint, an emulated one by its own subject name.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Annotated, Literal

from cryptography import x509
from pydantic import Field, TypeAdapter, ValidationError

from shared.attestation.cpu_trust import EMULATED_MARK, RESTORE_TRUST, in_file, read_trust_file
from shared.attestation.pck import certificate_fingerprint
from shared.canonical import json_value
from shared.claims import Claim
from shared.claims.program import HexSha384
from shared.errors import BadRequest, ConfigurationError

GpuRootSet = Literal["EMULATED", "NVIDIA"]
NVIDIA_DEVICE_ROOT = "102bf659d5419614c9d8e6aecebc80454eb26b1df6a769ac720b9a690b167b48"  # SHA-256 of the DER


@dataclass(frozen=True)
class GpuRoots:
    """Pinned root certificates by SHA-256 fingerprint of their DER, and the set that each belongs to."""

    certificates: Mapping[str, x509.Certificate]
    sets: Mapping[str, GpuRootSet]

    @classmethod
    def load(cls, source: bytes | Path) -> GpuRoots:
        """Roots from PEM. Raises: ConfigurationError: no certificate, or one that is neither NVIDIA's nor named EMULATED."""
        try:
            loaded = x509.load_pem_x509_certificates(read_trust_file(source, "GPU roots"))
        except ValueError:
            raise ConfigurationError(
                f"the GPU roots{in_file(source)} are not PEM certificates", code="bad-roots", remedy=RESTORE_TRUST
            ) from None
        certificates = {certificate_fingerprint(certificate): certificate for certificate in loaded}
        sets = {fingerprint: _root_set(fingerprint, root) for fingerprint, root in certificates.items()}
        return cls(MappingProxyType(certificates), MappingProxyType(sets))


def _root_set(fingerprint: str, root: x509.Certificate) -> GpuRootSet:
    if fingerprint == NVIDIA_DEVICE_ROOT:
        return "NVIDIA"
    if EMULATED_MARK in root.subject.rfc4514_string():
        return "EMULATED"
    raise ConfigurationError(
        f"root {fingerprint} is neither NVIDIA's nor named {EMULATED_MARK}",
        code="bad-roots",
        remedy="remove it from the trust folder",
    )


class GpuProfile(Claim):
    """Golden measurements of one driver and VBIOS: block number (1-64) -> admissible SHA-384 values, hex. Others are not compared."""

    driver_version: str
    vbios_version: str
    measurements: dict[Annotated[str, Field(pattern=r"^([1-9]|[1-5][0-9]|6[0-4])$")], tuple[HexSha384, ...]] = Field(
        min_length=1
    )

    def mismatches(self, measurements: tuple[bytes, ...]) -> list[int]:
        """Block numbers whose value is none of the golden ones, ascending."""
        golden = sorted((int(block), values) for block, values in self.measurements.items())
        return [block for block, values in golden if measurements[block - 1].hex() not in values]


_PROFILES: TypeAdapter[GpuProfile | tuple[GpuProfile, ...]] = TypeAdapter(GpuProfile | tuple[GpuProfile, ...])


@dataclass(frozen=True)
class GpuReference:
    """Reference values from `reference.json`, key "gpu": one profile or several."""

    profiles: tuple[GpuProfile, ...]

    @classmethod
    def load(cls, source: bytes | Path) -> GpuReference:
        """Raises: ConfigurationError: unreadable, or not the documented form."""
        try:
            value = json_value(read_trust_file(source, "GPU reference values"))
            loaded = _PROFILES.validate_python(value["gpu"])
        except (BadRequest, KeyError, TypeError, ValidationError) as error:
            raise ConfigurationError(
                f"the GPU reference values{in_file(source)} are malformed ({type(error).__name__})",
                code="bad-reference",
                remedy=RESTORE_TRUST,
            ) from None
        return cls(loaded if isinstance(loaded, tuple) else (loaded,))

    def find(self, driver_version: str, vbios_version: str) -> GpuProfile | None:
        """The profile of exactly these versions."""
        wanted = (driver_version, vbios_version)
        return next((p for p in self.profiles if (p.driver_version, p.vbios_version) == wanted), None)
