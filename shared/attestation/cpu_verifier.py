"""The verifier of CPU evidence: from evidence of any kind to what may be believed of a confidential VM. Knows no channel and no session.

Each kind of evidence has a recipe of its own (`tdx_verifier`). Examining never raises for bad evidence and believes nothing; verifying
is examining and then insisting on every check, and only it makes a `VerifiedCvm`.
"""

from __future__ import annotations

from base64 import b64decode
from dataclasses import InitVar, dataclass

from shared.attestation.appraisal import Appraisal
from shared.attestation.appraisals import appraise_tdx, tdx_tolerated
from shared.attestation.collateral_store import CollateralStore
from shared.attestation.cpu_trust import CpuPolicy, CpuReference, CpuRoots, CpuTrust, RootSet
from shared.attestation.results import CheckStatus
from shared.attestation.tdx_verifier import CHECKS, TdxExamination, examine_tdx
from shared.claims.event_log import Event
from shared.errors import VerificationFailed
from shared.names import Backend, CvmRole
from shared.wire.visit import Evidence

__all__ = [
    "CHECKS",
    "CpuPolicy",
    "CpuReference",
    "CpuRoots",
    "CpuTrust",
    "VerifiedCvm",
    "examine_cpu_evidence",
    "verify_cpu_evidence",
]

_MINT = object()


@dataclass(frozen=True)
class VerifiedCvm:
    """A confidential VM whose evidence was verified. Only `verify_cpu_evidence` makes it.

    `root_set` and `backend` say whose root it stands on; measurements and ids are hex; `tcb_status` and `advisories` are the
    collateral's verdict, `evaluation` the collateral's number; `events` are what the guest measured and showed; `checks` names the
    passed steps in order; `appraisal` holds them all.
    """

    role: CvmRole
    root_set: RootSet
    backend: Backend
    mr_td: str
    rtmrs: tuple[str, str, str, str]
    mr_config_id: str
    platform_id: str
    fmspc: str
    report_data: bytes
    tcb_status: str
    advisories: tuple[str, ...]
    evaluation: int
    events: tuple[Event, ...]
    checks: tuple[str, ...]
    appraisal: Appraisal
    _mint: InitVar[object] = None  # kept nowhere, so that `replace` cannot carry it into a changed copy

    def __post_init__(self, _mint: object) -> None:
        if _mint is not _MINT:
            raise TypeError("VerifiedCvm is made by verify_cpu_evidence only")


def examine_cpu_evidence(
    evidence: Evidence,
    *,
    report_data: bytes | None,
    role: CvmRole | None,
    roots: CpuRoots,
    reference: CpuReference,
    policy: CpuPolicy,
    at: float,
    collateral: CollateralStore | None = None,
) -> TdxExamination:
    """Judge one piece of evidence check by check; never raises for bad evidence. Arguments as for `verify_cpu_evidence`.

    `report_data` and `role` may be None; what they are compared with is then left unchecked, and said so.
    """
    trust = CpuTrust(roots, reference, policy, collateral)
    return examine_tdx(evidence, report_data=report_data, role=role, trust=trust, at=at)


def verify_cpu_evidence(
    evidence: Evidence,
    *,
    report_data: bytes,
    role: CvmRole,
    roots: CpuRoots,
    reference: CpuReference,
    policy: CpuPolicy,
    at: float,
    collateral: CollateralStore | None = None,
) -> VerifiedCvm:
    """Verify and appraise one quote.

    Args:
        report_data: the 64 bytes that the quote must cover.
        role: whose reference values count.
        at: the verifier's own time, seconds since 1970.
        collateral: TCB info, QE identities and revocation lists at hand; without it only what came with the evidence.

    Raises:
        VerificationFailed: the first check that does not stand, with its code (`malformed-quote`, `quote-…`, `collateral-…`, `tcb-…`,
            `cvm-…`, `event-log`, `engine-…`), expected and got.
    """
    found = examine_cpu_evidence(
        evidence, report_data=report_data, role=role, roots=roots, reference=reference, policy=policy, at=at,
        collateral=collateral,
    )  # fmt: skip
    found.checks.require(tdx_tolerated(found, policy))
    return _mint(found, role, roots, evidence, policy)


def _mint(found: TdxExamination, role: CvmRole, roots: CpuRoots, evidence: Evidence, policy: CpuPolicy) -> VerifiedCvm:
    quote, pck, collateral, tcb = found.quote, found.pck, found.collateral, found.tcb
    if quote is None or pck is None or collateral is None or tcb is None:
        raise VerificationFailed("the evidence was examined only in part", code="nothing-checked")
    body, root_set = quote.body, roots.sets[pck.root_fingerprint]
    return VerifiedCvm(
        role=role,
        root_set=root_set,
        backend=Backend.EMULATED if root_set == "EMULATED" else Backend.HARDWARE,
        mr_td=body.mr_td.hex(),
        rtmrs=(body.rtmr0.hex(), body.rtmr1.hex(), body.rtmr2.hex(), body.rtmr3.hex()),
        mr_config_id=body.mr_config_id.hex(),
        platform_id=pck.platform_id,
        fmspc=pck.fmspc,
        report_data=body.report_data,
        tcb_status=tcb.status,
        advisories=tcb.advisories,
        evaluation=collateral.evaluation,
        events=found.log.events if found.log is not None else (),
        checks=tuple(check.name for check in found.checks if check.status is CheckStatus.PASS),
        appraisal=appraise_tdx(found, b64decode(evidence.quote), policy),
        _mint=_MINT,
    )
