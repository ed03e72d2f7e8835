"""The verifier of CPU evidence: from a TDX quote to what may be believed of a confidential VM. Knows no channel and no session.

Steps (reference cpu-tee.md 1.2), in order; the first that fails raises and nothing after it runs:

     1  layout of every field                          6  TD attributes, XFAM, no service TD
     2  PCK chain to a pinned root                      7  report data
     3  the root's set is one that counts               8  measurements against reference values
     4  QE report by the PCK key, QE not in debug       9  platform allow-list
     5  attestation key bound; quote by that key       10  collateral: TCB info, QE identity, CRLs
"""

from __future__ import annotations

import base64
import binascii
import hmac
from dataclasses import dataclass

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.asymmetric.utils import encode_dss_signature

from shared.attestation.cpu_trust import (
    CollateralCheck,
    CpuPolicy,
    CpuReference,
    CpuRoots,
    CpuTrust,
    CvmProfile,
    CvmRole,
    RootSet,
)
from shared.attestation.pck import PckIdentity, verify_pck_chain
from shared.attestation.quote import SignatureData, TdReport, TdxQuote, parse_quote
from shared.canonical import sha256
from shared.errors import BadRequest, VerificationFailed
from shared.names import Backend
from shared.wire.visit import Evidence

__all__ = ["CpuPolicy", "CpuReference", "CpuRoots", "CpuTrust", "VerifiedCvm", "verify_cpu_evidence"]

REPORT_DATA_BYTES = 64
TD_DEBUG = 1 << 0
TD_SEPT_VE_DISABLE = 1 << 28
# Bits a TD may have: 16, 18-22, 27 (module features), 28 SEPT_VE_DISABLE, 30 PKS, 31 KL, 62-63 PERFMON. Debug, profiling,
# service TD, migration and reserved bits are refused (cpu-tee.md 1.2, as Intel's own verifier treats them).
TD_ALLOWED = sum(1 << bit for bit in (16, *range(18, 23), 27, 28, 30, 31, 62, 63))
XFAM_REQUIRED, XFAM_ALLOWED = 0x3, 0x6DBE7
QE_DEBUG = 0x2
NOT_JUDGED = "not-judged"
Measured = tuple[str, tuple[str, str, str, str]]  # MRTD, RTMR 0-3, hex
_MINT = object()


@dataclass(frozen=True)
class VerifiedCvm:
    """A confidential VM whose evidence was verified. Only `verify_cpu_evidence` makes it.

    `root_set` and `backend` say whose root it stands on; measurements and ids are hex; `tcb_status` is the collateral's
    verdict, or "not-judged" (emulated root without collateral); `checks` names the passed steps in order.
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
    checks: tuple[str, ...]
    _mint: object = None

    def __post_init__(self) -> None:
        if self._mint is not _MINT:
            raise TypeError("VerifiedCvm is made by verify_cpu_evidence only")


def verify_cpu_evidence(
    evidence: Evidence,
    *,
    report_data: bytes,
    role: CvmRole,
    roots: CpuRoots,
    reference: CpuReference,
    policy: CpuPolicy,
    at: float,
    collateral: CollateralCheck | None = None,
) -> VerifiedCvm:
    """Verify and appraise one quote.

    Args:
        report_data: the 64 bytes that the quote must cover.
        role: whose reference values count.
        at: the verifier's own time, seconds since 1970.
        collateral: judge of TCB info, QE identity and CRLs; without one only an emulated root is accepted.

    Raises:
        BadRequest: `malformed-quote`.
        VerificationFailed: the failed step's code (`quote-…`, `cvm-…`, `collateral-…`) with expected and got.
    """
    quote = parse_quote(_decoded(evidence.quote))
    pck = verify_pck_chain(quote.signature.certification, roots.certificates, at)
    root_set = _check_root_set(roots.sets[pck.root_fingerprint], policy)
    _check_qe_report(quote.signature, pck)
    _check_quote_signature(quote)
    _check_td(quote.body)
    _check_report_data(quote.body, report_data)
    mr_td, rtmrs = _check_measurements(quote.body, policy.accepted(reference.profiles(role)), role)
    _check_platform(pck, policy)
    status = _check_collateral(quote, evidence, root_set, collateral, at)
    return _mint(quote.body, pck, role, root_set, (mr_td, rtmrs), status)


def _mint(
    body: TdReport, pck: PckIdentity, role: CvmRole, root_set: RootSet, measured: Measured, status: str
) -> VerifiedCvm:
    return VerifiedCvm(
        role=role,
        root_set=root_set,
        backend=Backend.EMULATED if root_set == "EMULATED" else Backend.HARDWARE,
        mr_td=measured[0],
        rtmrs=measured[1],
        mr_config_id=body.mr_config_id.hex(),
        platform_id=pck.platform_id,
        fmspc=pck.fmspc,
        report_data=body.report_data,
        tcb_status=status,
        checks=CHECKS,
        _mint=_MINT,
    )


CHECKS = (
    "layout",
    "certificate-chain",
    "root-set",
    "qe-report",
    "quote-signature",
    "td-attributes",
    "report-data",
    "measurements",
    "platform",
    "collateral",
)


def _decoded(text: str) -> bytes:
    try:
        return base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError):
        raise BadRequest("the quote is not base64", code="malformed-quote") from None


def _check_root_set(root_set: RootSet, policy: CpuPolicy) -> RootSet:
    if root_set not in policy.roots:
        raise VerificationFailed(
            f"the quote stands on a root of set {root_set}, which the agreed policy does not name",
            code="quote-root-set",
            expected=", ".join(policy.roots),
            got=root_set,
        )
    if root_set == "EMULATED" and not policy.allow_emulated:
        raise VerificationFailed(
            "the quote is EMULATED and this verifier's configuration does not allow that",
            code="quote-emulated",
            expected="hardware",
            got=root_set,
            remedy="set allow_emulated only where nothing real is at stake",
        )
    return root_set


def _check_qe_report(signature: SignatureData, pck: PckIdentity) -> None:
    qe = signature.qe_report
    _check_p256(pck.key, signature.qe_signature, qe.raw, "quote-qe-signature", "the QE report is not by the PCK key")
    if qe.attributes[0] & QE_DEBUG:
        raise VerificationFailed("the quoting enclave runs in debug mode", code="quote-qe-debug")
    bound = sha256(signature.attestation_key + signature.qe_auth) + bytes(32)
    if qe.report_data != bound:
        raise VerificationFailed(
            "the QE report does not vouch for the attestation key",
            code="quote-qe-binding",
            expected=bound.hex(),
            got=qe.report_data.hex(),
        )


def _check_quote_signature(quote: TdxQuote) -> None:
    try:
        key = ec.EllipticCurvePublicKey.from_encoded_point(ec.SECP256R1(), b"\x04" + quote.signature.attestation_key)
    except ValueError:
        raise VerificationFailed("the attestation key is not a point of P-256", code="quote-signature") from None
    failure = "the quote is not signed by its attestation key"
    _check_p256(key, quote.signature.signature, quote.signed, "quote-signature", failure)


def _check_p256(key: ec.EllipticCurvePublicKey, signature: bytes, data: bytes, code: str, failure: str) -> None:
    r, s = int.from_bytes(signature[:32], "big"), int.from_bytes(signature[32:], "big")
    try:
        key.verify(encode_dss_signature(r, s), data, ec.ECDSA(hashes.SHA256()))
    except InvalidSignature:
        raise VerificationFailed(failure, code=code) from None


def _check_td(body: TdReport) -> None:
    attributes, xfam = int.from_bytes(body.td_attributes, "little"), int.from_bytes(body.xfam, "little")
    if attributes & TD_DEBUG:
        raise VerificationFailed("the confidential VM is debuggable", code="cvm-debug", got=f"{attributes:#018x}")
    if not attributes & TD_SEPT_VE_DISABLE:
        raise VerificationFailed(
            "the confidential VM lacks SEPT_VE_DISABLE", code="cvm-sept-ve", got=f"{attributes:#018x}"
        )
    if attributes & ~TD_ALLOWED:
        raise VerificationFailed(
            "the confidential VM has attributes that are not accepted",
            code="cvm-attributes",
            expected=f"within {TD_ALLOWED:#018x}",
            got=f"{attributes:#018x}",
        )
    if xfam & XFAM_REQUIRED != XFAM_REQUIRED or xfam & ~XFAM_ALLOWED:
        raise VerificationFailed("the confidential VM's XFAM is not accepted", code="cvm-xfam", got=f"{xfam:#x}")
    if any(body.mr_servicetd):
        raise VerificationFailed(
            "a service TD is bound to the confidential VM", code="cvm-service-td", got=body.mr_servicetd.hex()
        )


def _check_report_data(body: TdReport, expected: bytes) -> None:
    if len(expected) != REPORT_DATA_BYTES:
        raise BadRequest(f"report data has 64 bytes, got {len(expected)}", code="bad-report-data")
    if not hmac.compare_digest(body.report_data, expected):
        raise VerificationFailed(
            "the quote does not cover these bytes",
            code="quote-report-data",
            expected=expected.hex(),
            got=body.report_data.hex(),
        )


def _check_measurements(body: TdReport, profiles: tuple[CvmProfile, ...], role: CvmRole) -> Measured:
    mr_td = body.mr_td.hex()
    rtmrs = (body.rtmr0.hex(), body.rtmr1.hex(), body.rtmr2.hex(), body.rtmr3.hex())
    if not any(profile.matches(mr_td, rtmrs) for profile in profiles):
        raise VerificationFailed(
            f"the measured code is not what is accepted as {role}",
            code="cvm-measurement",
            expected=" | ".join(profile.mr_td for profile in profiles) or "no reference value is configured",
            got=mr_td,
            remedy="compare the builds; take over new reference values only after reviewing them",
        )
    return mr_td, rtmrs


def _check_platform(pck: PckIdentity, policy: CpuPolicy) -> None:
    if policy.platforms and pck.platform_id not in policy.platforms:
        raise VerificationFailed(
            "the machine is not on the allow-list",
            code="cvm-platform",
            expected=", ".join(sorted(policy.platforms)),
            got=pck.platform_id,
        )


def _check_collateral(
    quote: TdxQuote, evidence: Evidence, root_set: RootSet, collateral: CollateralCheck | None, at: float
) -> str:
    if collateral is not None:
        return collateral(quote.exact, _decoded(evidence.endorsements), at)
    if root_set != "EMULATED":
        # Unknown revocation and TCB status is refusal, never acceptance (cpu-tee.md 1.2 step 3).
        raise VerificationFailed(
            "no judge of TCB status and revocation is configured for hardware evidence", code="collateral-missing"
        )
    return NOT_JUDGED
