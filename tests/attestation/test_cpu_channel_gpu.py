"""The channel with a manufactured GPU behind it: the nonce ties the GPU's report to the orchestrator's session key."""

from __future__ import annotations

import base64
import warnings
from pathlib import Path
from typing import Any

import pytest

from gpu_agent.hardware.root_of_trust import RootOfTrust
from gpu_agent.platform.device_manufacture import manufacture_device
from shared.attestation.channel import (
    OrchestratorExpectation,
    build_orchestrator_runtime,
    report_data,
    verify_orchestrator,
)
from shared.attestation.gpu_verifier import GpuPolicy, GpuTrust, VerifiedGpu, verify_gpu_evidence
from shared.attestation.nonces import gpu_nonce
from shared.crypto.signing import PartyKey
from shared.errors import EmulationWarning, VerificationFailed
from shared.service.clock import system_clock, system_entropy
from shared.wire.visit import ChannelOffer, GpuEvidence
from tests.attestation.cpu_world import AT, Machine

SESSION, MANIFEST, NONCE = "s_0123456789abcdef", "ab" * 32, "01" * 32
CHALLENGE, TH2 = b"\x11" * 32, b"\x22" * 48


@pytest.fixture(scope="module")
def installation(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("installation")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", EmulationWarning)
        manufacture_device(folder, "gpu-0")
    return folder


def evidence_for(folder: Path, key: PartyKey) -> GpuEvidence:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", EmulationWarning)
        device = RootOfTrust.load(folder / "devices" / "gpu-0", system_entropy)
    nonce = gpu_nonce(CHALLENGE, TH2, 0, key.public)
    request = (
        bytes([0x11, 0xE0, 0x01, 0xFF]) + nonce + b"\x00"
    )  # GET_MEASUREMENTS, signed, all blocks (DSP0274 10.11.1)
    return GpuEvidence(
        report=base64.b64encode(device.report(request)).decode(),
        chain=device.chain_pem,
        challenge=CHALLENGE.hex(),
        th2=TH2.hex(),
        epoch=0,
    )


def check(folder: Path, evidence: GpuEvidence, key: PartyKey, **changes: Any) -> VerifiedGpu:
    machine, at = Machine(), system_clock()
    raw = build_orchestrator_runtime(
        session=SESSION,
        holder="north",
        manifest=MANIFEST,
        peer_nonce=NONCE,
        nonce="02" * 32,
        signing_key=key.public,
        enrolled_key=PartyKey.generate().public,
        gpu_evidence=evidence,
        not_after=int(AT) + 600,
    )
    offer = ChannelOffer(
        channel="c_1",
        runtime_data=base64.b64encode(raw).decode(),
        evidence=machine.evidence("orchestrator", report_data("orchestrator", raw)),
        gpu_evidence=evidence,
    )
    options: dict[str, Any] = {"roots": ("EMULATED",), "allow_emulated": True, **changes}

    def ask(offered: GpuEvidence, nonce: bytes) -> VerifiedGpu:
        return verify_gpu_evidence(
            base64.b64decode(offered.report), offered.chain, nonce=nonce, trust=GpuTrust.load(folder / "trust"),
            policy=GpuPolicy(**options), at=at,
        )  # fmt: skip

    seen = verify_orchestrator(
        offer,
        expected=OrchestratorExpectation(SESSION, "north", MANIFEST, NONCE),
        cpu=machine.trust(),
        gpu=ask,
        max_lifetime_s=3600,
        at=AT,
    )
    return seen.gpu


def test_a_manufactured_gpu_is_believed_for_its_session_key_only(installation: Path) -> None:
    key, thief = PartyKey.generate(), PartyKey.generate()
    evidence = evidence_for(installation, key)
    gpu = check(installation, evidence, key)
    assert (gpu.root_set, str(gpu.backend)) == ("EMULATED", "EMULATED")
    for change in ({}, {"epoch": 1}, {"challenge": "12" * 32}, {"th2": "23" * 48}):
        with pytest.raises(VerificationFailed) as caught:
            check(installation, evidence.model_copy(update=change), key if change else thief)
        assert caught.value.code == "gpu-nonce"


def test_an_emulated_gpu_needs_policy_and_switch(installation: Path) -> None:
    key = PartyKey.generate()
    evidence = evidence_for(installation, key)
    for change in ({"allow_emulated": False}, {"roots": ("NVIDIA",)}):
        with pytest.raises(VerificationFailed) as caught:
            check(installation, evidence, key, **change)
        assert caught.value.code.startswith("gpu-")
