"""A manufactured installation with one booted GPU, and evidence from it that a test can bend. Knows no session."""

from __future__ import annotations

import random
import shutil
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import gpu_agent
import shared
from gpu_agent.hardware.firmware import Firmware
from gpu_agent.hardware.root_of_trust import CHAIN_FILE, LEAF_FILE, RootOfTrust, load_private, unsigned_of
from gpu_agent.platform import device_pki as pki
from gpu_agent.platform.device_manufacture import manufacture_device
from gpu_agent.platform.rim_document import make_rim
from gpu_agent.platform.rim_manufacture import RIM_INDICES
from shared.attestation.gpu_chain import parse_chain
from shared.attestation.gpu_examination import GpuFindings, examine_gpu_evidence
from shared.attestation.gpu_report import Opaque, parse_report, unsigned_report
from shared.attestation.gpu_rim import RimKind
from shared.attestation.gpu_verifier import GpuPolicy, GpuRoots, GpuTrust, VerifiedGpu, verify_gpu_evidence
from shared.crypto import ecc
from shared.errors import EmulationWarning, VerificationFailed
from shared.wire.spdm import get_measurements
from tests.attestation.given_rims import GivenRims
from tests.measured import installed_firmware

AT = 1_790_000_000.0
NONCE = b"\x5a" * 32
EMULATED = GpuPolicy(roots=("EMULATED",), allow_emulated=True)


def entropy(seed: int) -> Callable[[int], bytes]:
    """Repeatable bytes."""
    return random.Random(seed).randbytes


@dataclass
class GpuWorld:
    """`folder`: the installation. `rot`: the booted device."""

    folder: Path
    rot: RootOfTrust

    @classmethod
    def make(cls, folder: Path, seed: int = 1) -> GpuWorld:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", EmulationWarning)
            manufacture_device(folder, "gpu-0", entropy=entropy(seed))
            return cls(folder, boot(folder, seed=seed + 1))

    @property
    def trust(self) -> GpuTrust:
        return GpuTrust.load(self.folder / "trust")

    @property
    def rims(self) -> dict[RimKind, Path]:
        """The published manifests, by kind."""
        files = sorted((self.folder / "trust" / "rim").glob("*.xml"))
        return {"driver": files[0], "vbios": files[1]}

    def given(self, **changed: bytes | None) -> GpuTrust:
        """This world's trust with one manifest or both exchanged."""
        rims: dict[str, bytes | None] = {kind: path.read_bytes() for kind, path in self.rims.items()}
        return GpuTrust(self.trust.roots, self.trust.rim_roots, GivenRims(**rims | changed))

    def report(self, nonce: bytes = NONCE) -> bytes:
        return self.rot.report(get_measurements(nonce))

    def resigned(self, key: Any = None, *, values: dict[int, bytes] | None = None, **opaque: bytes | None) -> bytes:
        """This device's report with other opaque fields or blocks (1-based), signed by `key`, its own unless given."""
        report = parse_report(self.report())
        changed = {Opaque[name]: value for name, value in opaque.items()}
        fields = {kind: changed.get(kind, value) for kind, value in report.opaque.items()}  # type: ignore[call-overload]
        kept = {kind: value for kind, value in fields.items() if value is not None}
        blocks = list(report.measurements)
        for block, value in (values or {}).items():
            blocks[block - 1] = value
        data = unsigned_report(get_measurements(NONCE), blocks, b"r" * 32, kept)
        return data + ecc.sign(key or self.rot._leaf, data)

    def verify(self, report: bytes | None = None, chain: str | None = None, **changes: Any) -> VerifiedGpu:
        return verify_gpu_evidence(*self._evidence(report, chain), **self._options(changes))

    def examine(self, report: bytes | None = None, chain: str | None = None, **changes: Any) -> GpuFindings:
        return examine_gpu_evidence(*self._evidence(report, chain), **self._options(changes))

    def _evidence(self, report: bytes | None, chain: str | None) -> tuple[bytes, str]:
        return self.report() if report is None else report, self.rot.chain_pem if chain is None else chain

    def _options(self, changes: dict[str, Any]) -> dict[str, Any]:
        return {"nonce": NONCE, "trust": self.trust, "policy": EMULATED, "at": AT} | changes


class Factory:
    """A chain of our own making, level by level, so that one level can be wrong; and a RIM authority beside it."""

    def __init__(self, leaf: Callable[[pki.Issued, bytes], pki.Issued] = pki.make_leaf) -> None:
        self.firmware = installed_firmware()
        self.root = pki.make_root("test")
        self.product = pki.make_intermediate(self.root, "GH100 Identity")
        self.provisioner = pki.make_intermediate(self.product, "GH100 Provisioner")
        self.identity = pki.make_identity(self.provisioner, b"\x01" * 8)
        self.leaf = leaf(self.identity, self.firmware.fwid)

    @property
    def levels(self) -> list[pki.Issued]:
        return [self.leaf, self.identity, self.provisioner, self.product, self.root]

    def pem(self, levels: list[pki.Issued] | None = None) -> str:
        return b"".join(pki.certificate_pem(level.certificate) for level in levels or self.levels).decode()

    @property
    def roots(self) -> GpuRoots:
        return GpuRoots.load(pki.certificate_pem(self.root.certificate))

    @cached_property
    def rims(self) -> RimAuthority:
        return RimAuthority()

    @property
    def trust(self) -> GpuTrust:
        return GpuTrust(self.roots, self.rims.roots, GivenRims(*self.rims.both(self.firmware)))

    def report(self, key: Any = None, firmware: Firmware | None = None) -> bytes:
        data = unsigned_of(firmware or self.firmware, get_measurements(NONCE), b"r" * 32)
        return data + ecc.sign(key or self.leaf.key, data)

    def refusal(self, report: bytes | None = None, chain: str | None = None, **changes: Any) -> str:
        """Code of the refusal, or "accepted"."""
        options = {"nonce": NONCE, "trust": self.trust, "policy": EMULATED, "at": AT} | changes
        try:
            verify_gpu_evidence(report or self.report(), self.pem() if chain is None else chain, **options)
        except VerificationFailed as error:
            return error.code
        return "accepted"


class RimAuthority:
    """Root, L2, L3 and signer of manifests of our own making."""

    def __init__(self) -> None:
        self.root = pki.make_root("test", "rim")
        self.product = pki.make_intermediate(self.root, "Reference Value GH100 CA")
        self.authority = pki.make_intermediate(self.product, "Reference Value L3 GH100 001", path_length=0)
        self.signer = pki.make_rim_signer(self.authority)

    @property
    def above(self) -> list[Any]:
        return [level.certificate for level in (self.authority, self.product, self.root)]

    @property
    def roots(self) -> GpuRoots:
        return GpuRoots.load(pki.certificate_pem(self.root.certificate), "rim")

    def make(self, kind: RimKind, firmware: Firmware | None = None, **changes: Any) -> bytes:
        """A manifest of this authority for this (or the installed) firmware."""
        measured = (firmware or installed_firmware()).measurements
        options: dict[str, Any] = {
            "product": "GH100", "version": {"driver": "580.000.01", "vbios": "00.EE.00.00.01"}[kind],
            "golden": {index: measured[index] for index in RIM_INDICES[kind]}, "signer": self.signer, "above": self.above,
        }  # fmt: skip
        return make_rim(**options | changes)

    def both(self, firmware: Firmware) -> tuple[bytes, bytes]:
        return self.make("driver", firmware), self.make("vbios", firmware)


def copied_code(target: Path) -> Path:
    """A copy of the installed code that a device measures, to be changed."""
    for package in (gpu_agent, shared):
        shutil.copytree(package.__path__[0], target / package.__name__, ignore=shutil.ignore_patterns("__pycache__"))
    return target


def boot(folder: Path, *, gpu: str = "gpu-0", seed: int = 2, foreign: Firmware | None = None) -> RootOfTrust:
    """Boot a manufactured device without the warning that everybody else gets.

    Args:
        foreign: what this boot measured, of code that does not ask whether its leaf certifies it.
    """
    device = folder / "devices" / gpu
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", EmulationWarning)
        if foreign is None:
            return RootOfTrust.load(device, entropy(seed))
        chain = parse_chain((device / CHAIN_FILE).read_text())
        return RootOfTrust(load_private(device / LEAF_FILE), chain, foreign, entropy(seed))
