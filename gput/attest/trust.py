"""What a person's verdict rests on: a trust folder, or the makers' roots pinned in the code; a policy; what to compare with.

Each family's file in the folder takes the place of that family's pinned roots. An EMULATED root counts only from a folder and only
where emulation was allowed (law L10). Knows no evidence.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Literal

from shared.attestation.certificate_files import PinnedRoots, pinned_roots
from shared.attestation.collateral_store import CollateralStore
from shared.attestation.cpu_trust import CpuPolicy, CpuReference, CpuRoots, CpuTrust
from shared.attestation.evidence_pieces import Piece
from shared.attestation.gpu_policy import GpuPolicy, GpuTrust
from shared.attestation.gpu_trust import GpuRoots
from shared.attestation.offered import OfferedRims, certificates
from shared.attestation.rim_store import RimFolder
from shared.attestation.snp_trust import SnpTrust
from shared.claims.faults import judged_policy
from shared.claims.manifest import EvidencePolicy
from shared.errors import BadRequest
from shared.names import CvmRole

RootName = Literal["EMULATED", "NVIDIA", "INTEL", "AMD"]
HARDWARE: tuple[RootName, ...] = ("NVIDIA", "INTEL", "AMD")
EMULATED: tuple[RootName, ...] = ("EMULATED",)


@dataclass(frozen=True)
class Wish:
    """What a person asked for. `nonce` 32 bytes, `report_data` 64, `at` seconds since 1970; None: nothing to compare with.

    `genuine_only`: what there is nothing to compare with may stay open. `verifier`: raw key that attestation results must be signed by.
    """

    at: float
    nonce: bytes | None = None
    report_data: bytes | None = None
    role: CvmRole | None = None
    policy: EvidencePolicy | None = None
    allow_emulated: bool = False
    genuine_only: bool = False
    verifier: bytes | None = None

    @cached_property
    def agreed(self) -> EvidencePolicy:
        """The policy given, or the default one: every maker's hardware; emulation where it was allowed."""
        return self.policy or EvidencePolicy(roots=(*HARDWARE, *(EMULATED if self.allow_emulated else ())))

    @cached_property
    def gpu(self) -> GpuPolicy:
        """The policy for a GPU."""
        return replace(GpuPolicy.of(self.agreed, allow_emulated=self.allow_emulated), unappraised=self.genuine_only)

    @cached_property
    def cpu(self) -> CpuPolicy:
        """The policy for a confidential VM."""
        return CpuPolicy.of(self.agreed, allow_emulated=self.allow_emulated)


@dataclass(frozen=True)
class Trust:
    """Everything that is believed beforehand."""

    gpu: GpuTrust
    cpu: CpuTrust
    snp: SnpTrust


def load_trust(folder: Path | None, pieces: Sequence[Piece], wish: Wish) -> Trust:
    """From the folder, where there is one and it has the family's file; else the pinned roots among the files' certificates.

    Raises:
        BadRequest: `no-trust`. ConfigurationError: a file of the folder is unusable.
    """
    if folder is not None and not folder.is_dir():
        raise BadRequest(
            f"{folder} is no trust folder", code="no-trust", remedy="Name a folder with cpu-roots.pem or the like."
        )
    pinned = pinned_roots(certificates(pieces))
    cpu_roots = CpuRoots.load(file) if (file := _file(folder, "cpu-roots.pem")) else pinned.cpu
    kept = cpu_roots.certificates
    store = CollateralStore.load(folder / "collateral", kept) if folder else CollateralStore(kept)
    reference = CpuReference.load(file) if (file := _file(folder, "reference.json")) else CpuReference({})
    own = SnpTrust.load(folder) if folder is not None else None
    snp = own or SnpTrust(pinned.snp, {})
    return Trust(_gpu(folder, pieces, pinned), CpuTrust(cpu_roots, reference, wish.cpu, store, snp), snp)


def _gpu(folder: Path | None, pieces: Sequence[Piece], pinned: PinnedRoots) -> GpuTrust:
    device = GpuRoots.load(file) if (file := _file(folder, "gpu-roots.pem")) else pinned.device
    rim = GpuRoots.load(file, "rim") if (file := _file(folder, "rim-roots.pem")) else pinned.rim
    beside = RimFolder(folder / "rim", rim) if folder is not None else None
    return GpuTrust(device, rim, OfferedRims(tuple(pieces), beside), folder / "ocsp" if folder is not None else None)


def _file(folder: Path | None, name: str) -> Path | None:
    return folder / name if folder is not None and (folder / name).exists() else None


def read_policy(path: Path) -> EvidencePolicy:
    """A policy file: JSON of an evidence policy, as it stands in a manifest. Raises: BadRequest, ManifestRefused with every finding."""
    try:
        data = path.read_bytes()
    except OSError as error:
        raise BadRequest(f"the policy {path} cannot be read: {error.strerror}", code="no-policy") from None
    return judged_policy(data, f"{path.name}: ")
