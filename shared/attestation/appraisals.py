"""From what a verifier found, family by family, to an appraisal. Knows how each family is tolerant, and no token.

`genuine_only` is for people who look at evidence: whether it is genuine and sound, whatever it vouches for. What there was nothing to
compare with may then be left open; what was compared and differs still refuses.
"""

from __future__ import annotations

from shared.attestation.appraisal import Appraisal
from shared.attestation.ar4si import Tolerated
from shared.attestation.cpu_claims import snp_claims, tdx_claims
from shared.attestation.cpu_trust import CpuPolicy
from shared.attestation.gpu_claims import nvidia_claims
from shared.attestation.gpu_examination import GpuFindings
from shared.attestation.gpu_policy import GpuPolicy
from shared.attestation.policy_id import policy_digest
from shared.attestation.results import CheckStatus
from shared.attestation.snp_examination import INSPECTION, NO_CRL, ExaminedSnp
from shared.attestation.snp_trust import SnpPolicy
from shared.attestation.tdx_verifier import TdxExamination
from shared.canonical import sha256

UNBOUND_GPU = ("nonce", CheckStatus.NOT_CHECKED)
UNBOUND_TDX = (("report-data", CheckStatus.NOT_CHECKED), ("measurements", CheckStatus.NOT_CHECKED))


def appraise_gpu(found: GpuFindings, report: bytes, policy: GpuPolicy, *, genuine_only: bool = False) -> Appraisal:
    """Of one report (request ‖ response)."""
    tolerated = policy.tolerated()
    return Appraisal(
        label="gpu",
        kind="gpu-report",
        examination=found.examination,
        tolerated=tolerated | {UNBOUND_GPU} if genuine_only else tolerated,
        root_set=found.root_set,
        policy=policy.digest,
        evidence=sha256(report).hex(),
        nonce=found.report.nonce if found.report else None,
        claims=nvidia_claims(found),
        known_instance=bool(policy.device or policy.rules.devices),
    )


def tdx_tolerated(found: TdxExamination, policy: CpuPolicy) -> Tolerated:
    """A quote without its event log says less, not something false; whoever needs an event asks for it. A service TD that the policy
    names cannot be put to the second verifier, which refuses them all."""
    tolerated = [("event-log", CheckStatus.NOT_CHECKED)]
    if found.quote is not None and found.quote.body.mr_servicetd.hex() in policy.tdx.service_tds:
        tolerated.append(("engine", CheckStatus.NOT_CHECKED))
    return tolerated


def appraise_tdx(found: TdxExamination, quote: bytes, policy: CpuPolicy, *, genuine_only: bool = False) -> Appraisal:
    """Of one quote. A status that the policy accepts but that is not UpToDate makes a weak platform."""
    return Appraisal(
        label="cvm",
        kind="tdx-quote",
        examination=found.checks,
        tolerated=[*tdx_tolerated(found, policy), *(UNBOUND_TDX if genuine_only else ())],
        root_set=found.root_set,
        policy=policy.digest,
        evidence=sha256(quote).hex(),
        nonce=found.quote.body.report_data if found.quote else None,
        claims=tdx_claims(found),
        known_instance=bool(policy.platforms or policy.tdx.machines),
        weak_platform=found.tcb_status not in (None, "UpToDate"),
    )


def appraise_snp(
    found: ExaminedSnp, report: bytes, policy: CpuPolicy, own: SnpPolicy, *, genuine_only: bool = False
) -> Appraisal:
    """Of one report. `own`: the verifier's policy for SEV-SNP, beside the agreed one."""
    tolerated = INSPECTION if genuine_only else (NO_CRL,)
    return Appraisal(
        label="cvm",
        kind="snp-report",
        examination=found.examination,
        tolerated=[pair for pair in tolerated if pair != NO_CRL or not own.require_crl],
        root_set=found.root_set,
        policy=policy_digest(policy, own),
        evidence=sha256(report).hex(),
        nonce=found.report.report_data if found.report else None,
        claims=snp_claims(found),
        known_instance=bool(policy.platforms or policy.snp.machines or own.machines),
    )
