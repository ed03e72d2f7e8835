"""Pinned roots of GPUs and of their reference integrity manifests: two sets, never interchangeable. Knows no report.

A root's set follows from the root itself, never from evidence: NVIDIA's by fingerprint, an emulated one by its own subject name.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Final, Literal

from cryptography import x509
from cryptography.x509.oid import NameOID

from shared.attestation.cpu_trust import EMULATED_MARK, RESTORE_TRUST, in_file, read_trust_file
from shared.attestation.pck import certificate_fingerprint
from shared.attestation.x509_parts import BAD_CERTIFICATE, readable
from shared.errors import ConfigurationError

GpuRootSet = Literal["EMULATED", "NVIDIA"]
Purpose = Literal["device", "rim"]
NVIDIA_DEVICE_ROOT: Final = "102bf659d5419614c9d8e6aecebc80454eb26b1df6a769ac720b9a690b167b48"  # SHA-256 of the DER
NVIDIA_RIM_ROOT: Final = "12977b5115acb0381179279fffeb5a8c4d264971ebb32298023a465fa41df5d1"
ROOT_NAMES: Final[dict[Purpose, str]] = {
    "device": f"{EMULATED_MARK} Device Identity CA",
    "rim": f"{EMULATED_MARK} CoRIM signing Root CA",
}
"""How the common name of an emulated root begins: its purpose is part of it, so that the two cannot be swapped."""
_NVIDIA: Final[dict[Purpose, str]] = {"device": NVIDIA_DEVICE_ROOT, "rim": NVIDIA_RIM_ROOT}


@dataclass(frozen=True)
class GpuRoots:
    """Pinned root certificates of one purpose by SHA-256 fingerprint of their DER, and the set that each belongs to."""

    certificates: Mapping[str, x509.Certificate]
    sets: Mapping[str, GpuRootSet]
    purpose: Purpose = "device"

    @classmethod
    def load(cls, source: bytes | Path, purpose: Purpose = "device") -> GpuRoots:
        """Roots from PEM. Raises: ConfigurationError: no certificate, or one that is neither NVIDIA's nor EMULATED for this purpose."""
        try:
            loaded = readable(x509.load_pem_x509_certificates(read_trust_file(source, f"GPU {purpose} roots")))
        except BAD_CERTIFICATE:
            raise ConfigurationError(
                f"the GPU {purpose} roots{in_file(source)} are not PEM certificates",
                code="bad-roots",
                remedy=RESTORE_TRUST,
            ) from None
        certificates = {certificate_fingerprint(certificate): certificate for certificate in loaded}
        sets = {fingerprint: _root_set(fingerprint, root, purpose) for fingerprint, root in certificates.items()}
        return cls(MappingProxyType(certificates), MappingProxyType(sets), purpose)


def _root_set(fingerprint: str, root: x509.Certificate, purpose: Purpose) -> GpuRootSet:
    if fingerprint == _NVIDIA[purpose]:
        return "NVIDIA"
    names = [str(name.value) for name in root.subject.get_attributes_for_oid(NameOID.COMMON_NAME)]
    if len(names) == 1 and names[0].startswith(ROOT_NAMES[purpose]):
        return "EMULATED"
    raise ConfigurationError(
        f"root {fingerprint} is neither NVIDIA's {purpose} root nor named {ROOT_NAMES[purpose]!r}",
        code="bad-roots",
        remedy="remove it from the trust folder",
    )
