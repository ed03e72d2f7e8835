"""What this holder believes in: trust roots and reference values from its own disk, policies from the approved manifest. Knows no HTTP.

An EMULATED root counts only when the manifest names it *and* this holder's own settings allow it (law L10).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from shared.attestation.channel import OrchestratorExpectation, VerifiedOrchestrator, verify_orchestrator
from shared.attestation.collateral_refresh import CollateralKeeper
from shared.attestation.collateral_store import CollateralStore
from shared.attestation.cpu_verifier import CpuPolicy, CpuReference, CpuRoots, CpuTrust
from shared.attestation.gpu_verifier import GpuPolicy, GpuTrust, verify_gpu_evidence, verify_statement_key
from shared.attestation.one_time_keys import decoded
from shared.attestation.recovery import RecoveryExpectation, VerifiedRecovery, verify_recovery
from shared.attestation.rim_store import RimFetcher
from shared.attestation.snp_trust import SnpTrust
from shared.claims.manifest import Manifest
from shared.crypto.cose import raw_verifier
from shared.errors import ConfigurationError
from shared.names import Backend
from shared.service.collateral_source import PccsSource
from shared.service.logging import get_logger
from shared.wire.recovery import ShareOffer
from shared.wire.visit import ChannelOffer, GpuEvidence

_log = get_logger("data_holder.trust")


@dataclass(frozen=True)
class AttestedGpu:
    """What stays of a verified GPU: its identity, and the statement key its leaf certified (raw; empty where it has none)."""

    device: str
    backend: Backend
    statement_key: bytes


@dataclass(frozen=True)
class TrustAnchors:
    """Roots, reference values and collateral as configured; read at start, but for what `SnpTrust` and `GpuTrust` renew."""

    cpu_roots: CpuRoots
    cpu_reference: CpuReference
    gpu: GpuTrust
    allow_emulated: bool
    keeper: CollateralKeeper
    snp: SnpTrust | None = None

    async def prepare(self, offer: ChannelOffer | ShareOffer, *, at: float) -> None:
        """Have collateral for the orchestrator's machine, where a service of one's own is set and has it."""
        if (why := await self.keeper.prepare(offer.evidence, at)) is not None:
            _log.warning("collateral not fetched", why=why)

    def verify_orchestrator(
        self, offer: ChannelOffer, expected: OrchestratorExpectation, manifest: Manifest, *, at: float
    ) -> VerifiedOrchestrator[AttestedGpu]:
        """The orchestrator behind a channel offer, believed. Raises: VerificationFailed with the check's own code."""
        return verify_orchestrator(
            offer,
            expected=expected,
            cpu=self._cpu(manifest),
            gpu=self._gpu_check(manifest, expected.gpu_device, at),
            max_lifetime_s=manifest.orchestrator_evidence.max_age_s,
            at=at,
        )

    def verify_recovery(
        self, offer: ShareOffer, expected: RecoveryExpectation, manifest: Manifest, *, at: float
    ) -> VerifiedRecovery:
        """The orchestrator that asks for a share, believed exactly as one that opens a channel. Raises: VerificationFailed."""
        return verify_recovery(offer, expected=expected, cpu=self._cpu(manifest), at=at)

    def _cpu(self, manifest: Manifest) -> CpuTrust:
        policy = CpuPolicy.of(manifest.orchestrator_evidence, allow_emulated=self.allow_emulated)
        return CpuTrust(self.cpu_roots, self.cpu_reference, policy, self.keeper.store, snp=self.snp)

    def _gpu_check(
        self, manifest: Manifest, device: str | None, at: float
    ) -> Callable[[GpuEvidence, bytes], AttestedGpu]:
        policy = GpuPolicy.of(manifest.gpu_evidence, allow_emulated=self.allow_emulated, device=device)

        def check(evidence: GpuEvidence, nonce: bytes) -> AttestedGpu:
            gpu = verify_gpu_evidence(
                decoded(evidence.report), evidence.chain, nonce=nonce, trust=self.gpu, policy=policy, at=at,
                stapled=[decoded(response) for response in evidence.ocsp],
            )  # fmt: skip
            certificate = decoded(evidence.statement_key)
            key = raw_verifier(verify_statement_key(gpu, certificate)) if certificate else b""
            return AttestedGpu(gpu.device, gpu.backend, key)

        return check


def load_anchors(
    trust_dir: Path | None, *, allow_emulated: bool, rims: RimFetcher | None = None, collateral_url: str | None = None
) -> TrustAnchors:
    """Read the trust folder. `rims`: asked for reference values that are not there; `collateral_url`: for collateral.

    Raises:
        ConfigurationError: the folder is not named, a file is absent or names no root.
    """
    if trust_dir is None:
        raise ConfigurationError(
            "trust_dir is not set: nothing could be believed",
            remedy="Point trust_dir at the installation's trust folder",
        )
    for name in ("cpu-roots.pem", "gpu-roots.pem", "rim-roots.pem", "reference.json"):
        if not (trust_dir / name).is_file():
            raise ConfigurationError(
                f"{trust_dir / name} is missing", remedy="Copy it from the installation's trust folder"
            )
    cpu_roots = CpuRoots.load(trust_dir / "cpu-roots.pem")
    kept, source = trust_dir / "collateral", PccsSource(collateral_url) if collateral_url else None
    keeper = CollateralKeeper(CollateralStore.load(kept, cpu_roots.certificates), cpu_roots, source, kept)
    return TrustAnchors(
        cpu_roots, CpuReference.load(trust_dir / "reference.json"), GpuTrust.load(trust_dir, rims), allow_emulated, keeper,
        SnpTrust.load(trust_dir),
    )  # fmt: skip
