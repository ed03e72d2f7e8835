"""The attested channel between orchestrator and data holder: runtime data, and the two verifiers. Knows no HTTP, clock or store.

Design 4.2 step 4, reference cpu-tee.md 5.4. Each peer's quote covers report_data = SHA-512("gput/asc/1 ROLE" 00 ‖ runtime data), the exact
bytes as sent; the runtime data names role, session, holder, manifest, both nonces, the session signing key, and the GPU evidence.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import InitVar, dataclass
from functools import partial
from typing import Generic, Literal, TypeVar

from pydantic import ValidationError

from shared.attestation.cpu_trust import CpuTrust
from shared.attestation.cpu_verifier import VerifiedCvm
from shared.attestation.cvm_verifier import Cvm, verify_cvm_evidence
from shared.attestation.nonces import gpu_nonce
from shared.attestation.offers import VerifiedOffer, open_offer, seal_offer, verify_offer
from shared.attestation.one_time_keys import (
    SHARE_KEY_LABEL,
    VerifiedOneTimeKey,
    decoded,
    sign_one_time_key,
    verify_one_time_key,
)
from shared.attestation.session_events import check_session_event
from shared.canonical import json_bytes, json_value, sha256, sha512
from shared.claims.shape import first_fault
from shared.crypto.signing import fingerprint
from shared.errors import BadRequest, VerificationFailed
from shared.names import CvmRole
from shared.wire.visit import ChannelOffer, ChannelProof, Evidence, GpuEvidence, RuntimeData

__all__ = [
    "GpuCheck",
    "OrchestratorExpectation",
    "VerifiedHolder",
    "VerifiedOffer",
    "VerifiedOneTimeKey",
    "VerifiedOrchestrator",
    "build_holder_runtime",
    "build_orchestrator_runtime",
    "gpu_evidence_digest",
    "open_offer",
    "report_data",
    "seal_offer",
    "sign_one_time_key",
    "verify_holder",
    "verify_offer",
    "verify_one_time_key",
    "verify_orchestrator",
]

Role = Literal["orchestrator", "holder"]
G = TypeVar("G")
CLOCK_SLACK_S = 60
GpuCheck = Callable[[GpuEvidence, bytes], G]
"""(evidence, nonce that its report must carry) -> the GPU verifier's own result type, or raises VerificationFailed."""
_CVM_ROLES: dict[Role, CvmRole] = {"orchestrator": "orchestrator", "holder": "data_holder"}
_MINT = object()


@dataclass(frozen=True)
class OrchestratorExpectation:
    """What a holder insists on. `nonce` is the holder's own, hex; `enrolled_key` raw, None where the holder knows none.

    `gpu_challenge` (hex): the challenge the GPU must have answered. None accepts the orchestrator's own: its measured code
    asked the GPU at session setup, and the CPU quote of this very channel covers the evidence. `gpu_device` (PDI, hex): the GPU that this
    session began with, for the check of the GPU; None in a first channel.
    """

    session: str
    holder: str
    manifest: str
    nonce: str
    enrolled_key: bytes | None = None
    gpu_challenge: str | None = None
    gpu_device: str | None = None


@dataclass(frozen=True)
class VerifiedOrchestrator(Generic[G]):
    """An orchestrator whose code, GPU and session signing key were verified. Only `verify_orchestrator` makes it."""

    channel: str
    runtime: RuntimeData
    runtime_data: bytes
    cvm: Cvm
    gpu: G
    signing_key: bytes
    _mint: InitVar[object] = None  # kept nowhere, so that `replace` cannot carry it into a changed copy

    def __post_init__(self, _mint: object) -> None:
        if _mint is not _MINT:
            raise TypeError("VerifiedOrchestrator is made by verify_orchestrator only")


@dataclass(frozen=True)
class VerifiedHolder:
    """A holder whose code, session signing key and first one-time keys were verified. Only `verify_holder` makes it."""

    channel: str
    runtime: RuntimeData
    runtime_data: bytes
    cvm: Cvm
    signing_key: bytes
    one_time_key: VerifiedOneTimeKey
    share_key: VerifiedOneTimeKey | None = None
    _mint: InitVar[object] = None  # kept nowhere, so that `replace` cannot carry it into a changed copy

    def __post_init__(self, _mint: object) -> None:
        if _mint is not _MINT:
            raise TypeError("VerifiedHolder is made by verify_holder only")


def report_data(role: Role, runtime_data: bytes) -> bytes:
    """The 64 bytes a quote covers: SHA-512("gput/asc/1 ROLE" 00 ‖ runtime_data)."""
    return sha512(f"gput/asc/1 {role}".encode() + b"\x00" + runtime_data)


def gpu_evidence_digest(evidence: GpuEvidence) -> str:
    """SHA-256 of the evidence's canonical JSON, hex; what runtime data and receipts name."""
    return sha256(json_bytes(evidence.model_dump(mode="json"))).hex()


def build_orchestrator_runtime(
    *,
    session: str,
    holder: str,
    manifest: str,
    peer_nonce: str,
    nonce: str,
    signing_key: bytes,
    enrolled_key: bytes,
    gpu_evidence: GpuEvidence,
    not_after: int,
) -> bytes:
    """The orchestrator's runtime data, canonical JSON. `peer_nonce` is the holder's challenge; keys are raw.

    Raises:
        BadRequest: `malformed-runtime-data`.
    """
    return _runtime_bytes(
        role="orchestrator", session=session, holder=holder, manifest=manifest, peer_nonce=peer_nonce, nonce=nonce,
        signing_key=signing_key.hex(), enrolled_key=enrolled_key.hex(), gpu_evidence=gpu_evidence_digest(gpu_evidence),
        not_after=not_after,
    )  # fmt: skip


def build_holder_runtime(
    orchestrator: VerifiedOrchestrator[G], *, nonce: str, signing_key: bytes, enrolled_key: bytes, not_after: int
) -> bytes:
    """The holder's runtime data: an answer to exactly the orchestrator's. Raises: BadRequest `malformed-runtime-data`."""
    seen = orchestrator.runtime
    return _runtime_bytes(
        role="holder", session=seen.session, holder=seen.holder, manifest=seen.manifest, peer_nonce=seen.nonce, nonce=nonce,
        signing_key=signing_key.hex(), enrolled_key=enrolled_key.hex(), previous=sha256(orchestrator.runtime_data).hex(),
        not_after=not_after,
    )  # fmt: skip


def verify_orchestrator(
    offer: ChannelOffer,
    *,
    expected: OrchestratorExpectation,
    cpu: CpuTrust,
    gpu: GpuCheck[G],
    max_lifetime_s: int,
    at: float,
) -> VerifiedOrchestrator[G]:
    """The holder's check of an orchestrator, in this order: structure, role, session, nonce, lifetime, quote, event, GPU.

    Raises:
        BadRequest: malformed runtime data.
        VerificationFailed: `channel-…` for the runtime data, the CPU verifier's and the GPU verifier's codes.
    """
    raw = decoded(offer.runtime_data)
    runtime = _parsed(raw)
    _require("role", "orchestrator", runtime.role)
    _require("session", expected.session, runtime.session)
    _require("holder", expected.holder, runtime.holder)
    _require("manifest", expected.manifest, runtime.manifest)
    _require("nonce", expected.nonce, runtime.peer_nonce)
    _require("previous", None, runtime.previous)
    if expected.enrolled_key is not None:
        _require("enrolled-key", expected.enrolled_key.hex(), runtime.enrolled_key)
    _check_lifetime(runtime, max_lifetime_s, at)
    cvm = _verify_quote(runtime, offer.evidence, raw, cpu, at)
    _require("gpu-evidence", gpu_evidence_digest(offer.gpu_evidence), runtime.gpu_evidence)
    signing_key = bytes.fromhex(runtime.signing_key)
    evidence = offer.gpu_evidence
    if expected.gpu_challenge is not None:
        _require("gpu-challenge", expected.gpu_challenge, evidence.challenge)
    nonce = gpu_nonce(bytes.fromhex(evidence.challenge), bytes.fromhex(evidence.th2), evidence.epoch, signing_key)
    return VerifiedOrchestrator(offer.channel, runtime, raw, cvm, gpu(evidence, nonce), signing_key, _MINT)


def verify_holder(
    proof: ChannelProof,
    *,
    channel: str,
    orchestrator_runtime: bytes,
    enrolled_key: bytes,
    cpu: CpuTrust,
    max_lifetime_s: int,
    at: float,
) -> VerifiedHolder:
    """The orchestrator's check of a holder's answer to the runtime data that it sent itself.

    Args:
        orchestrator_runtime: the exact bytes sent in this channel's offer.
        enrolled_key: raw key that authenticated the request and is the roster's for this holder.

    Raises:
        BadRequest: malformed runtime data or one-time key.
        VerificationFailed: `channel-…`, the CPU verifier's codes, `bad-signature`, `one-time-key-…`.
    """
    own, raw = _parsed(orchestrator_runtime), decoded(proof.runtime_data)
    runtime = _parsed(raw)
    _require("role", "holder", runtime.role)
    _require("session", own.session, runtime.session)
    _require("holder", own.holder, runtime.holder)
    _require("manifest", own.manifest, runtime.manifest)
    _require("nonce", own.nonce, runtime.peer_nonce)
    _require("previous", sha256(orchestrator_runtime).hex(), runtime.previous)
    _require("gpu-evidence", None, runtime.gpu_evidence)
    _require("enrolled-key", enrolled_key.hex(), runtime.enrolled_key)
    if runtime.signing_key in (own.signing_key, own.enrolled_key, runtime.enrolled_key):
        raise VerificationFailed(
            f"the holder's session key {fingerprint(bytes.fromhex(runtime.signing_key))[:16]}… is not a key of its own",
            code="channel-reflection",
        )
    _check_lifetime(runtime, max_lifetime_s, at)
    cvm = _verify_quote(runtime, proof.evidence, raw, cpu, at)
    signing_key = bytes.fromhex(runtime.signing_key)
    verified = partial(
        verify_one_time_key, signing_key=signing_key, session=own.session, holder=own.holder, channel=channel
    )
    one_time = verified(proof.one_time_key)
    share_key = None if proof.share_key is None else verified(proof.share_key, label=SHARE_KEY_LABEL)
    return VerifiedHolder(channel, runtime, raw, cvm, signing_key, one_time, share_key, _MINT)


def _runtime_bytes(**fields: object) -> bytes:
    try:
        runtime = RuntimeData.model_validate(fields)
    except ValidationError as error:
        raise _malformed(error) from None
    return json_bytes(runtime.model_dump(mode="json"))


def _parsed(raw: bytes) -> RuntimeData:
    try:
        return RuntimeData.model_validate(json_value(raw))
    except ValidationError as error:
        raise _malformed(error) from None


def _malformed(error: ValidationError) -> BadRequest:
    return BadRequest(f"runtime data: {first_fault(error)}", code="malformed-runtime-data")


def _verify_quote(runtime: RuntimeData, evidence: Evidence, raw: bytes, cpu: CpuTrust, at: float) -> Cvm:
    cvm = verify_cvm_evidence(
        evidence, report_data=report_data(runtime.role, raw), role=_CVM_ROLES[runtime.role], trust=cpu, at=at
    )
    if isinstance(cvm, VerifiedCvm):  # SEV-SNP has no register that a guest could measure an event into
        check_session_event(cvm, runtime)
    return cvm


def _check_lifetime(runtime: RuntimeData, max_lifetime_s: int, at: float) -> None:
    # Peers' clocks differ a little; expiry itself is by our own clock and has no slack.
    if not at < runtime.not_after <= at + max_lifetime_s + CLOCK_SLACK_S:
        raise VerificationFailed(
            "the proof is expired or lives longer than agreed",
            code="channel-lifetime",
            expected=f"after {at:.0f}, at most {at + max_lifetime_s:.0f}",
            got=str(runtime.not_after),
        )


def _require(what: str, expected: str | None, got: str | None) -> None:
    if expected != got:
        raise VerificationFailed(
            f"the proof is for another {what}",
            code=f"channel-{what}",
            expected=expected or "none",
            got=got or "none",
        )
