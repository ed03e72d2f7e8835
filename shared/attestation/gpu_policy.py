"""What a verifier of GPU evidence is configured with and asks for: trust material and policy. Knows no report.

Everything is denied by default: NVIDIA's roots only, both reference integrity manifests and in time, single-GPU passthrough, firmware
with an id.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from shared.attestation.gpu_ocsp import MAX_RESPONSE_BYTES, MAX_RESPONSES
from shared.attestation.gpu_trust import GpuRoots
from shared.attestation.policy_id import Identified
from shared.attestation.results import CheckStatus
from shared.attestation.rim_store import RimFetcher, RimFolder, RimSource
from shared.attestation.root_sets import check_set
from shared.claims.manifest import EvidencePolicy, GpuRules
from shared.errors import ConfigurationError, VerificationFailed

RIM_CHECKS = ("rim", "rim-version", "rim-chain", "rim-signature", "rim-time", "rim-ocsp")
"""Checks that are made of each manifest; their names begin with "driver-" and "vbios-"."""


@dataclass(frozen=True)
class GpuTrust:
    """Pinned device roots, pinned RIM roots, where manifests come from, and a folder of OCSP responses (DER), if any."""

    roots: GpuRoots
    rim_roots: GpuRoots
    rims: RimSource
    ocsp_folder: Path | None = None

    def __post_init__(self) -> None:
        shared = self.roots.certificates.keys() & self.rim_roots.certificates.keys()
        if (self.roots.purpose, self.rim_roots.purpose) != ("device", "rim") or shared:
            raise ConfigurationError("device roots and RIM roots are not interchangeable", code="bad-roots")

    @classmethod
    def load(cls, folder: Path, fetcher: RimFetcher | None = None) -> GpuTrust:
        """From a trust folder: `gpu-roots.pem`, `rim-roots.pem`, `rim/`, `ocsp/`. Raises: ConfigurationError."""
        rim_roots = GpuRoots.load(folder / "rim-roots.pem", "rim")
        rims = RimFolder(folder / "rim", rim_roots, fetcher)
        return cls(GpuRoots.load(folder / "gpu-roots.pem"), rim_roots, rims, folder / "ocsp")

    def ocsp_responses(self) -> tuple[bytes, ...]:
        """What lies in the folder now, to verify with and to staple: responses live for a day, so they are read each time."""
        found = []
        for file in sorted(self.ocsp_folder.glob("*.der"))[:MAX_RESPONSES] if self.ocsp_folder else ():
            with contextlib.suppress(OSError), file.open("rb") as opened:  # renewed or removed under way: absent
                found.append(opened.read(MAX_RESPONSE_BYTES + 1))
        return tuple(found)


@dataclass(frozen=True)
class GpuPolicy(Identified):
    """What is believed of a GPU.

    Attributes:
        roots: root sets that count.
        allow_emulated: this verifier's own switch; "EMULATED" needs both (law L10).
        measurements: agreed digests over all measurement values (SHA-384, hex); when given, one must match too.
        rules: what the parties agreed to accept besides the strict default.
        device: the permanent identity (PDI, hex) that this session began with, if it has one.
        unappraised: accept a genuine report without reference values for it. Only for people who look at evidence.
    """

    roots: tuple[str, ...] = ("NVIDIA",)
    allow_emulated: bool = False
    measurements: tuple[str, ...] = ()
    rules: GpuRules = field(default_factory=GpuRules)
    device: str | None = None
    unappraised: bool = False

    @classmethod
    def of(cls, agreed: EvidencePolicy, *, allow_emulated: bool, device: str | None = None) -> GpuPolicy:
        """The manifest's policy under this verifier's own configuration."""
        return cls(agreed.roots, allow_emulated, agreed.measurements, agreed.gpu or GpuRules(), device)

    def check_root_set(self, root_set: str) -> None:
        """Raises: VerificationFailed `gpu-root-set`, `gpu-emulated`."""
        check_set(root_set, self.roots, allow_emulated=self.allow_emulated, what="the GPU", code="gpu")

    def check_mode(self, mode: str) -> None:
        """Raises: VerificationFailed `gpu-feature-flag`."""
        if mode not in self.rules.modes:
            raise VerificationFailed(
                "the GPU is not passed through as the policy asks",
                code="gpu-feature-flag",
                expected=", ".join(self.rules.modes),
                got=mode,
            )

    def check_device(self, pdi: str) -> None:
        """Raises: VerificationFailed `gpu-device`: not the session's GPU, or none of those agreed on."""
        wanted = (self.device,) if self.device is not None else self.rules.devices
        if (wanted and pdi not in wanted) or (self.rules.devices and pdi not in self.rules.devices):
            raise VerificationFailed(
                "the GPU is genuine, but another one than this session's", code="gpu-device", expected=", ".join(wanted),
                got=pdi, remedy="the platform must bring back the GPU with which the session began",
            )  # fmt: skip

    def check_agreed(self, digest: str) -> None:
        """Raises: VerificationFailed `gpu-measurements`: the digest over all measurements is none of those agreed on."""
        if self.measurements and digest not in self.measurements:
            raise VerificationFailed(
                "the GPU's measurements are none of those agreed in the manifest",
                code="gpu-measurements",
                expected=", ".join(self.measurements),
                got=digest,
            )

    def tolerated(self) -> frozenset[tuple[str, CheckStatus]]:
        """Checks that need not have passed, and how they may have ended instead."""
        return frozenset(self._tolerated())

    def _tolerated(self) -> Iterator[tuple[str, CheckStatus]]:
        if self.rules.firmware_without_id:
            yield "firmware-id", CheckStatus.NOT_CHECKED
        if self.rules.expired_reference_values:
            yield from ((f"{kind}-rim-time", CheckStatus.EXPIRED) for kind in ("driver", "vbios"))
        if self.rules.revocation == "if-stapled":
            # What is stale could as well have been left out.
            for name in ("ocsp", "driver-rim-ocsp", "vbios-rim-ocsp"):
                yield from ((name, status) for status in (CheckStatus.NOT_CHECKED, CheckStatus.EXPIRED))
        if self.unappraised:
            yield from (
                (f"{kind}-{name}", CheckStatus.NOT_CHECKED) for kind in ("driver", "vbios") for name in RIM_CHECKS
            )
            yield from ((name, CheckStatus.NOT_CHECKED) for name in ("rim-indices", "measurements"))
