"""Channel offers, proofs and runtime data as both ends of a channel make them, on emulated evidence."""

from __future__ import annotations

import base64
from collections.abc import Callable
from typing import Any

import pytest

from shared.attestation.channel import (
    OrchestratorExpectation,
    VerifiedHolder,
    VerifiedOrchestrator,
    build_holder_runtime,
    build_orchestrator_runtime,
    report_data,
    sign_one_time_key,
    verify_holder,
    verify_orchestrator,
)
from shared.crypto.hpke import OneTimeKey
from shared.crypto.signing import PartyKey
from shared.errors import VerificationFailed
from shared.wire.visit import ChannelOffer, ChannelProof, GpuEvidence
from tests.attestation.cpu_world import AT, Machine, measured

MACHINE = Machine()


SESSION, OTHER_SESSION = "s_0123456789abcdef", "s_fedcba9876543210"


MANIFEST, CHANNEL = "ab" * 32, "c_1"


HOLDER_NONCE, ORCHESTRATOR_NONCE, ANSWER_NONCE = "01" * 32, "02" * 32, "03" * 32


ENROLLED_ORCHESTRATOR, ENROLLED_HOLDER = PartyKey.generate(), PartyKey.generate()


ORCHESTRATOR, HOLDER = PartyKey.generate(), PartyKey.generate()


GPU = GpuEvidence(report="AAAA", chain="PEM", challenge="11" * 32, th2="22" * 48, epoch=0)


EXPECTED = OrchestratorExpectation(SESSION, "north", MANIFEST, HOLDER_NONCE, ENROLLED_ORCHESTRATOR.public)


LIFETIME = 3600


def b64(data: bytes) -> str:
    return base64.b64encode(data).decode()


def orchestrator_runtime(**changes: Any) -> bytes:
    fields: dict[str, Any] = {
        "session": SESSION,
        "holder": "north",
        "manifest": MANIFEST,
        "peer_nonce": HOLDER_NONCE,
        "nonce": ORCHESTRATOR_NONCE,
        "signing_key": ORCHESTRATOR.public,
        "enrolled_key": ENROLLED_ORCHESTRATOR.public,
        "gpu_evidence": GPU,
        "not_after": int(AT) + 600,
    }
    return build_orchestrator_runtime(**{**fields, **changes})


def channel_offer(raw: bytes, *, cvm: str = "orchestrator", role: Any = "orchestrator", gpu: GpuEvidence = GPU) -> Any:
    quote = MACHINE.evidence(cvm, report_data(role, raw), measured(raw))
    return ChannelOffer(channel=CHANNEL, runtime_data=b64(raw), evidence=quote, gpu_evidence=gpu)


def gpu_check(seen: list[bytes] | None = None) -> Callable[[GpuEvidence, bytes], str]:
    def check(evidence: GpuEvidence, nonce: bytes) -> str:
        if seen is not None:
            seen.append(nonce)
        if evidence.report != "AAAA":
            raise VerificationFailed("bad report", code="gpu-report")
        return "gpu"

    return check


def holder_checks(offer: ChannelOffer, **changes: Any) -> VerifiedOrchestrator[str]:
    options: dict[str, Any] = {"expected": EXPECTED, "cpu": MACHINE.trust(), "gpu": gpu_check(), "at": AT}
    return verify_orchestrator(offer, **{"max_lifetime_s": LIFETIME, **options, **changes})


def channel_proof(
    seen: VerifiedOrchestrator[str],
    *,
    signing: PartyKey = HOLDER,
    key: OneTimeKey | None = None,
    cvm: str = "holder-north",
    not_after: int = int(AT) + 600,
    channel: str = CHANNEL,
) -> ChannelProof:
    raw = build_holder_runtime(
        seen,
        nonce=ANSWER_NONCE,
        signing_key=signing.public,
        enrolled_key=ENROLLED_HOLDER.public,
        not_after=not_after,
    )
    statement = sign_one_time_key(
        signing,
        session=SESSION,
        holder="north",
        channel=channel,
        nonce=ANSWER_NONCE,
        public=(key or OneTimeKey.generate()).public,
    )
    quote = MACHINE.evidence(cvm, report_data("holder", raw), measured(raw))
    return ChannelProof(runtime_data=b64(raw), evidence=quote, one_time_key=statement)


def orchestrator_checks(proof: ChannelProof, raw: bytes | None = None, **changes: Any) -> VerifiedHolder:
    options: dict[str, Any] = {
        "channel": CHANNEL,
        "orchestrator_runtime": raw or orchestrator_runtime(),
        "enrolled_key": ENROLLED_HOLDER.public,
        "cpu": MACHINE.trust(),
        "max_lifetime_s": LIFETIME,
        "at": AT,
    }
    return verify_holder(proof, **{**options, **changes})


def code_of(act: Callable[[], object]) -> str:
    with pytest.raises(VerificationFailed) as caught:
        act()
    return caught.value.code


# ------------------------------------------------------------------ orchestrator, seen by the holder
