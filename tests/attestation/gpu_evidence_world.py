"""A manufactured installation with one booted GPU, and evidence from it that a test can bend. Knows no session."""

from __future__ import annotations

import random
import warnings
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from gpu_agent.hardware.firmware import measure_firmware
from gpu_agent.hardware.root_of_trust import RootOfTrust
from gpu_agent.platform import device_pki as pki
from gpu_agent.platform.device_manufacture import manufacture_device
from shared.attestation.gpu_verifier import GpuReference, GpuRoots, VerifiedGpu, verify_gpu_evidence
from shared.errors import EmulationWarning
from shared.wire.spdm import get_measurements

AT = 1_790_000_000.0
NONCE = b"\x5a" * 32


def entropy(seed: int) -> Callable[[int], bytes]:
    """Repeatable bytes."""
    return random.Random(seed).randbytes


@dataclass
class GpuWorld:
    """`folder`: the installation. `rot`: the booted device."""

    folder: Path
    rot: RootOfTrust
    options: dict[str, Any] = field(default_factory=dict)

    @classmethod
    def make(cls, folder: Path, seed: int = 1) -> GpuWorld:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", EmulationWarning)
            manufacture_device(folder, "gpu-0", entropy=entropy(seed))
            return cls(folder, boot(folder, seed=seed + 1))

    @property
    def roots(self) -> GpuRoots:
        return GpuRoots.load(self.folder / "trust" / "gpu-roots.pem")

    @property
    def reference(self) -> GpuReference:
        return GpuReference.load(self.folder / "trust" / "reference.json")

    def report(self, nonce: bytes = NONCE) -> bytes:
        return self.rot.report(get_measurements(nonce))

    def verify(self, report: bytes | None = None, chain: str | None = None, **changes: Any) -> VerifiedGpu:
        options: dict[str, Any] = {
            "nonce": NONCE, "roots": self.roots, "reference": self.reference, "allowed_roots": ("EMULATED",),
            "allow_emulated": True, "at": AT,
        }  # fmt: skip
        return verify_gpu_evidence(
            self.report() if report is None else report,
            self.rot.chain_pem if chain is None else chain,
            **options | changes,
        )


class Factory:
    """A chain of our own making, level by level, so that one level can be wrong."""

    def __init__(self, leaf: Callable[[pki.Issued, bytes], pki.Issued] = pki.make_leaf) -> None:
        self.root = pki.make_root("test")
        self.product = pki.make_intermediate(self.root, "GH100 Identity")
        self.provisioner = pki.make_intermediate(self.product, "GH100 Provisioner")
        self.identity = pki.make_identity(self.provisioner, b"\x01" * 8)
        self.leaf = leaf(self.identity, measure_firmware().fwid)

    @property
    def levels(self) -> list[pki.Issued]:
        return [self.leaf, self.identity, self.provisioner, self.product, self.root]

    def pem(self, levels: list[pki.Issued] | None = None) -> str:
        return b"".join(pki.certificate_pem(level.certificate) for level in levels or self.levels).decode()

    @property
    def roots(self) -> GpuRoots:
        return GpuRoots.load(pki.certificate_pem(self.root.certificate))


def boot(folder: Path, *, gpu: str = "gpu-0", seed: int = 2) -> RootOfTrust:
    """Boot a manufactured device without the warning that everybody else gets."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", EmulationWarning)
        return RootOfTrust.load(folder / "devices" / gpu, entropy(seed))
