"""From GPU evidence to a verified GPU: examination, policy, belief. Knows no session and no channel.

`gpu_examination` holds the recipe; what may have ended other than passed is the policy's (`gpu_policy`). The nonce's freshness is the
caller's.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import InitVar, dataclass
from typing import Any

from cryptography.hazmat.primitives.asymmetric import ec

from shared.attestation.appraisal import Appraisal
from shared.attestation.appraisals import appraise_gpu
from shared.attestation.gpu_chain import chain_digest, public_key
from shared.attestation.gpu_examination import GpuFindings, examine_gpu_evidence
from shared.attestation.gpu_policy import GpuPolicy, GpuTrust
from shared.attestation.gpu_report import STATEMENT_KEY_PROFILE
from shared.attestation.gpu_trust import GpuRoots, GpuRootSet
from shared.canonical import cbor_value, sha256
from shared.crypto.cose import Verifier, load_verifier, p384_point, verify1
from shared.errors import BadRequest, VerificationFailed
from shared.names import Backend

__all__ = [
    "GpuPolicy",
    "GpuRoots",
    "GpuTrust",
    "VerifiedGpu",
    "certified_statement_key",
    "examine_gpu_evidence",
    "verify_gpu_evidence",
    "verify_statement_key",
]
_MINT = object()


@dataclass(frozen=True)
class VerifiedGpu:
    """A GPU whose evidence was verified. Only `verify_gpu_evidence` makes it.

    `root_set` ("EMULATED" or "NVIDIA") and `backend` say whose root it stands on; `device` is the permanent identity (PDI, hex);
    `leaf` signed the report; digests are SHA-256 (chain, report) and SHA-384 (all measurement values), hex; `appraisal` holds every
    check by which it came to be believed.
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
    appraisal: Appraisal
    _mint: InitVar[object] = None  # kept nowhere, so that `replace` cannot carry it into a changed copy

    def __post_init__(self, _mint: object) -> None:
        if _mint is not _MINT:
            raise TypeError("VerifiedGpu is made by verify_gpu_evidence only")


def verify_gpu_evidence(
    report: bytes,
    chain_pem: str,
    *,
    nonce: bytes,
    trust: GpuTrust,
    policy: GpuPolicy,
    at: float,
    stapled: Sequence[bytes] = (),
) -> VerifiedGpu:
    """Examine one report and accept it under `policy`, or refuse it with the first check that stands against it.

    Args:
        report: request ‖ response.
        nonce: the 32 bytes that this verifier chose.
        at: the verifier's own time, seconds since 1970.
        stapled: OCSP responses, DER, that came with the evidence.

    Raises:
        BadRequest: `bad-gpu-nonce`.
        VerificationFailed: that check's code (`gpu-…`, `malformed-…`) with expected and got.
    """
    found = examine_gpu_evidence(report, chain_pem, nonce=nonce, trust=trust, policy=policy, at=at, stapled=stapled)
    found.examination.require(policy.tolerated())
    return _verified(found, report, policy)


def _verified(found: GpuFindings, report: bytes, policy: GpuPolicy) -> VerifiedGpu:
    if found.report is None or found.chain is None or found.device is None or found.root_set is None:
        raise VerificationFailed("nothing was checked", code="nothing-checked")  # unreachable after `require`
    return VerifiedGpu(
        root_set=found.root_set,
        backend=Backend.EMULATED if found.root_set == "EMULATED" else Backend.HARDWARE,
        device=found.device.pdi,
        leaf=public_key(found.chain.certificates[0]),
        chain_digest=chain_digest(found.chain),
        report_digest=sha256(report).hex(),
        measurements_digest=found.report.measurements_digest,
        driver_version=found.report.driver_version,
        vbios_version=found.report.vbios_version,
        appraisal=appraise_gpu(found, report, policy),
        _mint=_MINT,
    )


def verify_statement_key(gpu: VerifiedGpu, statement_certificate: bytes) -> Verifier:
    """The device's statement key of this boot, certified by the verified leaf: Ed25519; of earlier releases' devices P-384.

    Args:
        statement_certificate: COSE_Sign1 over CBOR ["gput/statement-key", boot nonce (32), raw Ed25519 key (32) or P-384 point (97)].

    Raises:
        BadRequest: malformed. VerificationFailed: not by this leaf, or not a statement key.
    """
    return certified_statement_key(gpu.leaf, statement_certificate)


def certified_statement_key(leaf: ec.EllipticCurvePublicKey, statement_certificate: bytes) -> Verifier:
    """The same of a leaf (P-384) that is not believed yet; nor is the key then. Raises: as `verify_statement_key`."""
    payload = verify1(statement_certificate, leaf, kid=sha256(p384_point(leaf)))
    value: Any = cbor_value(payload)
    if not isinstance(value, list) or len(value) != 3 or value[0] != STATEMENT_KEY_PROFILE:
        raise VerificationFailed("the leaf certified something else than a statement key", code="gpu-statement-key")
    _, boot, key = value
    if not (isinstance(boot, bytes) and len(boot) == 32 and isinstance(key, bytes)):
        raise BadRequest("a statement key certificate names a boot nonce and a key", code="malformed-statement-key")
    return load_verifier(key)
