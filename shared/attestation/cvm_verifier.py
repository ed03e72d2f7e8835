"""One door for the evidence of a confidential VM, whichever CPU made it. Knows the kinds of evidence, and no channel.

    tdx-quote     `cpu_verifier`       snp-report     `snp_verifier`

The sender's `kind` only chooses the verifier: evidence of one kind under the other's name is refused by its layout.
"""

from __future__ import annotations

from shared.attestation.cpu_trust import CpuTrust
from shared.attestation.cpu_verifier import VerifiedCvm, verify_cpu_evidence
from shared.attestation.snp_trust import ROOTS_FILE
from shared.attestation.snp_verifier import VerifiedSnp, verify_snp_evidence
from shared.errors import VerificationFailed
from shared.names import CvmRole
from shared.wire.visit import Evidence

Cvm = VerifiedCvm | VerifiedSnp
"""Either has `role`, `root_set`, `backend`, `platform_id`, `report_data` and `checks`."""


def verify_cvm_evidence(evidence: Evidence, *, report_data: bytes, role: CvmRole, trust: CpuTrust, at: float) -> Cvm:
    """Verify and appraise one piece of CPU evidence by its kind.

    Args:
        report_data: the 64 bytes that the evidence must cover.
        role: whose reference values count.
        at: the verifier's own time, seconds since 1970.

    Raises:
        BadRequest, VerificationFailed: of the kind's verifier; `evidence-kind` when this verifier has no roots for it.
        Unavailable: a revocation list in this verifier's own folder cannot be read now.
    """
    if evidence.kind == "snp-report":
        if trust.snp is None:
            raise VerificationFailed(
                "the evidence is of SEV-SNP, and no roots for that are configured",
                code="evidence-kind",
                expected="tdx-quote",
                got=evidence.kind,
                remedy=f"put AMD's root certificates into the trust folder as {ROOTS_FILE}",
            )
        return verify_snp_evidence(
            evidence, report_data=report_data, role=role, trust=trust.snp, policy=trust.policy, at=at
        )
    return verify_cpu_evidence(
        evidence,
        report_data=report_data,
        role=role,
        roots=trust.roots,
        reference=trust.reference,
        policy=trust.policy,
        at=at,
        collateral=trust.collateral,
    )
