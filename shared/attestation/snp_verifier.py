"""The verifier of SEV-SNP evidence: from an examination to what may be believed of a confidential VM. Knows no channel, no session.

The recipe's twenty steps are in `snp_examination` (genuine?) and `snp_appraisal` (wanted?); here is what may be left open, and the
only place that makes a `VerifiedSnp`.
"""

from __future__ import annotations

import base64
import binascii
from dataclasses import InitVar, dataclass

from shared.attestation.appraisal import Appraisal
from shared.attestation.appraisals import appraise_snp
from shared.attestation.cpu_trust import CpuPolicy
from shared.attestation.results import CheckStatus
from shared.attestation.snp_appraisal import Expectation, machine_of
from shared.attestation.snp_examination import (
    INSPECTION,
    NO_CRL,
    ExaminedSnp,
    SnpEndorsements,
    examine_snp_evidence,
)
from shared.attestation.snp_trust import SnpPolicy, SnpProfile, SnpRoots, SnpRootSet, SnpTrust
from shared.claims.snp_rules import Product
from shared.errors import BadRequest, VerificationFailed
from shared.names import Backend, CvmRole
from shared.wire.snp_certificates import parse_certificate_table
from shared.wire.visit import Evidence

__all__ = [
    "INSPECTION",
    "ExaminedSnp",
    "Expectation",
    "SnpEndorsements",
    "SnpPolicy",
    "SnpProfile",
    "SnpRoots",
    "SnpTrust",
    "VerifiedSnp",
    "examine_snp_evidence",
    "verify_snp_evidence",
]

_MINT = object()


@dataclass(frozen=True)
class VerifiedSnp:
    """A confidential VM whose SEV-SNP evidence was verified. Only `verify_snp_evidence` makes it.

    `root_set` ("AMD" or "EMULATED") and `backend` say whose root it stands on; `platform_id` is the chip's, "" where a VLEK hides
    it; `csp_id` the cloud of a VLEK. Measurements and ids are hex; `checks` names the passed checks in order; `appraisal` holds them all.
    """

    role: CvmRole
    root_set: SnpRootSet
    backend: Backend
    product: Product
    measurement: str
    host_data: str
    platform_id: str
    csp_id: str
    vmpl: int
    guest_svn: int
    report_data: bytes
    checks: tuple[str, ...]
    appraisal: Appraisal
    _mint: InitVar[object] = None  # kept nowhere, so that `replace` cannot carry it into a changed copy

    def __post_init__(self, _mint: object) -> None:
        if _mint is not _MINT:
            raise TypeError("VerifiedSnp is made by verify_snp_evidence only")


def verify_snp_evidence(
    evidence: Evidence, *, report_data: bytes, role: CvmRole, trust: SnpTrust, policy: CpuPolicy, at: float
) -> VerifiedSnp:
    """Verify and appraise one report.

    Args:
        evidence: kind "snp-report"; `endorsements` is the host's certificate table.
        report_data: the 64 bytes that the report must cover.
        role: whose reference values count.
        policy: agreed root sets, measurements and machines, and this verifier's own switch for EMULATED roots.
        at: the verifier's own time, seconds since 1970.

    Raises:
        BadRequest: `malformed-base64`, `malformed-certificate-table`.
        VerificationFailed: the first failed check's code (`malformed-snp-report`, `snp-…`, `cvm-…`) with expected and got.
        Unavailable: as `SnpTrust.lists`.
    """
    raw, table = _decoded(evidence.quote), parse_certificate_table(_decoded(evidence.endorsements))
    wanted = Expectation(report_data, trust.accepted(role, policy.measurements), policy.platforms)
    found = examine_snp_evidence(raw, SnpEndorsements.of(table), trust=trust, agreed=policy, expected=wanted, at=at)
    found.examination.require(() if trust.policy.require_crl else (NO_CRL,))
    return _minted(found, role, appraise_snp(found, raw, policy, trust.policy))


def _minted(found: ExaminedSnp, role: CvmRole, appraisal: Appraisal) -> VerifiedSnp:
    report, chain, root_set = found.report, found.chain, found.root_set
    if report is None or chain is None or root_set is None:
        raise VerificationFailed("the examination is incomplete", code="nothing-checked")
    return VerifiedSnp(
        role=role,
        root_set=root_set,
        backend=Backend.EMULATED if root_set == "EMULATED" else Backend.HARDWARE,
        product=chain.leaf.product,
        measurement=report.measurement.hex(),
        host_data=report.host_data.hex(),
        platform_id=machine_of(report, chain.leaf),
        csp_id=chain.leaf.csp_id,
        vmpl=report.vmpl,
        guest_svn=report.guest_svn,
        report_data=report.report_data,
        checks=tuple(check.name for check in found.examination if check.status is CheckStatus.PASS),
        appraisal=appraisal,
        _mint=_MINT,
    )


def _decoded(text: str) -> bytes:
    try:
        return base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError):
        raise BadRequest("the evidence is not base64", code="malformed-base64") from None
