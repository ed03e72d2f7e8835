"""The verifier of GPU evidence: from a report and a chain to what may be believed of a device. Knows no session and no channel.

Steps (reference h100.md section 10), in order; the first that fails raises and nothing after it runs:

     1  layout of every field                          7  firmware id as certified
     2  five certificates to a pinned root             8  nonce
     3  links, P-384, CA flags, key usage, validity    9  report signature by the leaf
     4  the device is a GPU                           10  feature flag: a single passed-through GPU
     5  DICE: DeviceID is the identity's key          11  measurements against reference values
     6  the root's set is one that counts

Not here: RIM documents and OCSP; reference values come from the trust folder. The nonce's freshness is the caller's.
"""

from __future__ import annotations

import hmac
from dataclasses import InitVar, dataclass
from typing import Any

from cryptography.hazmat.primitives.asymmetric import ec

from shared.attestation.gpu_chain import DeviceIdentity, verify_chain
from shared.attestation.gpu_report import NONCE_BYTES, STATEMENT_KEY_PROFILE, GpuReport, parse_report
from shared.attestation.gpu_trust import GpuProfile, GpuReference, GpuRoots, GpuRootSet
from shared.canonical import cbor_value, sha256, sha384
from shared.crypto import ecc
from shared.crypto.cose import load_p384_public, p384_point, verify1
from shared.errors import BadRequest, VerificationFailed
from shared.names import Backend

__all__ = ["GpuProfile", "GpuReference", "GpuRoots", "VerifiedGpu", "verify_gpu_evidence", "verify_statement_key"]

SINGLE_PASSTHROUGH = 0
CHECKS = (
    "layout",
    "certificate-chain",
    "links",
    "device-type",
    "device-id",
    "root-set",
    "firmware-id",
    "nonce",
    "signature",
    "feature-flag",
    "measurements",
)
_MINT = object()


@dataclass(frozen=True)
class VerifiedGpu:
    """A GPU whose evidence was verified. Only `verify_gpu_evidence` makes it.

    `root_set` ("EMULATED" or "NVIDIA") and `backend` say whose root it stands on; `device` is the permanent identity (PDI, hex);
    `leaf` signed the report; digests are SHA-256 (chain, report) and SHA-384 (all measurement values), hex.
    """

    root_set: GpuRootSet
    backend: Backend
    device: str
    leaf: ec.EllipticCurvePublicKey
    chain_digest: str
    report_digest: str
    measurements_digest: str
    driver_version: str
    vbios_version: str
    checks: tuple[str, ...]
    _mint: InitVar[object] = None  # kept nowhere, so that `replace` cannot carry it into a changed copy

    def __post_init__(self, _mint: object) -> None:
        if _mint is not _MINT:
            raise TypeError("VerifiedGpu is made by verify_gpu_evidence only")


def verify_gpu_evidence(
    report: bytes,
    chain_pem: str,
    *,
    nonce: bytes,
    roots: GpuRoots,
    reference: GpuReference,
    allowed_roots: tuple[str, ...],
    allow_emulated: bool,
    at: float,
    measurements: tuple[str, ...] = (),
) -> VerifiedGpu:
    """Verify and appraise one report.

    Args:
        report: request ‖ response.
        nonce: the 32 bytes that this verifier chose.
        allowed_roots: root sets that the agreed policy names.
        allow_emulated: this verifier's own switch; "EMULATED" needs both (law L10).
        at: the verifier's own time, seconds since 1970.
        measurements: agreed digests over all measurement values (`VerifiedGpu.measurements_digest`); when given, one must match too.

    Raises:
        BadRequest: `malformed-gpu-report`, `malformed-spdm`.
        VerificationFailed: the failed step's code (`gpu-…`) with expected and got.
    """
    parsed = parse_report(report)
    device = verify_chain(chain_pem, roots.certificates, at)
    root_set = _check_root_set(roots.sets[device.root_fingerprint], allowed_roots, allow_emulated)
    _check_fwid(parsed, device)
    _check_nonce(parsed, nonce)
    _check_signature(parsed, device)
    _check_feature_flag(parsed)
    _check_measurements(parsed, reference)
    digest = _check_agreed(parsed, measurements)
    return _mint(parsed, report, device, root_set, digest)


def _mint(parsed: GpuReport, report: bytes, device: DeviceIdentity, root_set: GpuRootSet, digest: str) -> VerifiedGpu:
    return VerifiedGpu(
        root_set=root_set,
        backend=Backend.EMULATED if root_set == "EMULATED" else Backend.HARDWARE,
        device=device.pdi,
        leaf=device.leaf,
        chain_digest=device.digest,
        report_digest=sha256(report).hex(),
        measurements_digest=digest,
        driver_version=parsed.driver_version,
        vbios_version=parsed.vbios_version,
        checks=CHECKS,
        _mint=_MINT,
    )


def verify_statement_key(gpu: VerifiedGpu, statement_certificate: bytes) -> ec.EllipticCurvePublicKey:
    """The device's statement key (P-384) of this boot, certified by the verified leaf.

    Args:
        statement_certificate: COSE_Sign1 over CBOR ["gput/statement-key", boot nonce (32), uncompressed point (97)].

    Raises:
        BadRequest: malformed. VerificationFailed: not by this leaf, or not a statement key.
    """
    payload = verify1(statement_certificate, gpu.leaf, kid=sha256(p384_point(gpu.leaf)))
    value: Any = cbor_value(payload)
    if not isinstance(value, list) or len(value) != 3 or value[0] != STATEMENT_KEY_PROFILE:
        raise VerificationFailed("the leaf certified something else than a statement key", code="gpu-statement-key")
    _, boot, point = value
    if not (isinstance(boot, bytes) and len(boot) == 32 and isinstance(point, bytes)):
        raise BadRequest("a statement key certificate names a boot nonce and a point", code="malformed-statement-key")
    return load_p384_public(point)


def _check_root_set(root_set: GpuRootSet, allowed: tuple[str, ...], allow_emulated: bool) -> GpuRootSet:
    if root_set not in allowed:
        raise VerificationFailed(
            f"the GPU stands on a root of set {root_set}, which the agreed policy does not name",
            code="gpu-root-set",
            expected=", ".join(allowed),
            got=root_set,
        )
    if root_set == "EMULATED" and not allow_emulated:
        raise VerificationFailed(
            "the GPU is EMULATED and this verifier's configuration does not allow that",
            code="gpu-emulated",
            expected="hardware",
            got=root_set,
            remedy="set allow_emulated only where nothing real is at stake",
        )
    return root_set


def _check_fwid(report: GpuReport, device: DeviceIdentity) -> None:
    if report.fwid is None or not hmac.compare_digest(report.fwid, device.fwid):
        raise VerificationFailed(
            "the firmware that made the report is not the one that the leaf certifies",
            code="gpu-fwid",
            expected=device.fwid.hex(),
            got=report.fwid.hex() if report.fwid else "no firmware id (older than 550)",
            remedy="a device whose firmware was changed needs its leaf issued anew",
        )


def _check_nonce(report: GpuReport, nonce: bytes) -> None:
    if len(nonce) != NONCE_BYTES:
        raise BadRequest("a GPU nonce has 32 bytes", code="bad-gpu-nonce")
    # The request's nonce only: the responder's own merely freshens the signature.
    if not hmac.compare_digest(report.nonce, nonce):
        raise VerificationFailed(
            "the report answers another challenge", code="gpu-nonce", expected=nonce.hex(), got=report.nonce.hex()
        )


def _check_signature(report: GpuReport, device: DeviceIdentity) -> None:
    try:
        ecc.verify(device.leaf, report.signed, report.signature, "GPU report")
    except VerificationFailed:
        raise VerificationFailed("the report is not signed by the GPU's leaf key", code="gpu-signature") from None


def _check_feature_flag(report: GpuReport) -> None:
    if report.feature_flag != SINGLE_PASSTHROUGH:
        raise VerificationFailed(
            "the GPU is not passed through alone",
            code="gpu-feature-flag",
            expected="0 (single GPU)",
            got=str(report.feature_flag),
        )


def _check_measurements(report: GpuReport, reference: GpuReference) -> None:
    profile = reference.find(report.driver_version, report.vbios_version)
    if profile is None:
        raise VerificationFailed(
            "there are no reference values for this GPU's driver and VBIOS",
            code="gpu-reference-missing",
            expected=", ".join(f"{p.driver_version}/{p.vbios_version}" for p in reference.profiles)
            or "none is configured",
            got=f"{report.driver_version}/{report.vbios_version}",
        )
    wrong = profile.mismatches(report.measurements)
    if wrong:
        raise VerificationFailed(
            f"the report is genuine, but measurement blocks {', '.join(map(str, wrong))} are not the reference values",
            code="gpu-measurements",
            expected="; ".join(f"{block}: {' or '.join(profile.measurements[str(block)])}" for block in wrong),
            got="; ".join(f"{block}: {report.measurements[block - 1].hex()}" for block in wrong),
            remedy="the GPU runs other firmware than the one whose values are in the trust folder",
        )


def _check_agreed(report: GpuReport, agreed: tuple[str, ...]) -> str:
    digest = sha384(b"".join(report.measurements)).hex()
    if agreed and digest not in agreed:
        raise VerificationFailed(
            "the GPU's measurements are none of those agreed in the manifest",
            code="gpu-measurements",
            expected=", ".join(agreed),
            got=digest,
        )
    return digest
