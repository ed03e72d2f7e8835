"""The GPU half of a channel check, as a door: agreed policy and own roots closed over the GPU verifier. Knows no channel."""

from __future__ import annotations

from collections.abc import Callable

from shared.attestation.gpu_verifier import GpuReference, GpuRoots, VerifiedGpu, verify_gpu_evidence
from shared.attestation.one_time_keys import decoded
from shared.claims.manifest import EvidencePolicy
from shared.wire.visit import GpuEvidence


def gpu_check(
    roots: GpuRoots, reference: GpuReference, agreed: EvidencePolicy, *, allow_emulated: bool, at: float
) -> Callable[[GpuEvidence, bytes], VerifiedGpu]:
    """What `verify_orchestrator` asks about GPU evidence and the nonce (32 bytes) that its report must carry.

    The returned check raises what `verify_gpu_evidence` raises.
    """

    def check(evidence: GpuEvidence, nonce: bytes) -> VerifiedGpu:
        return verify_gpu_evidence(
            decoded(evidence.report),
            evidence.chain,
            nonce=nonce,
            roots=roots,
            reference=reference,
            allowed_roots=agreed.roots,
            allow_emulated=allow_emulated,
            at=at,
            measurements=agreed.measurements,
        )

    return check
