"""The default policy is production's: emulated evidence of every family, otherwise in perfect order, is refused for its root alone."""

from __future__ import annotations

from pathlib import Path

import pytest

from shared.attestation.cpu_trust import CpuTrust
from shared.attestation.cpu_verifier import CpuPolicy
from shared.attestation.cvm_verifier import verify_cvm_evidence
from shared.attestation.gpu_verifier import GpuPolicy
from shared.claims.manifest import EvidencePolicy, RosterEntry
from shared.errors import VerificationFailed
from shared.names import Backend
from shared.wire.visit import Evidence
from tests.adversary.rows import attack
from tests.attestation.cpu_world import AT, Machine
from tests.attestation.gpu_evidence_world import GpuWorld
from tests.attestation.snp_world import REPORT_DATA, body, good_chip, platform, signed

PRODUCTION = (CpuPolicy(), CpuPolicy.of(RosterEntry(holder="h", key="00" * 32).evidence, allow_emulated=False))
AGREED_BUT_NOT_HERE = CpuPolicy.of(EvidencePolicy(roots=("EMULATED",)), allow_emulated=False)
ALLOWED_BUT_NOT_AGREED = CpuPolicy.of(RosterEntry(holder="h", key="00" * 32).evidence, allow_emulated=True)


def trust(machine: Machine, policy: CpuPolicy) -> CpuTrust:
    return machine.trust(policy=policy, snp=platform().trust())


def evidence(machine: Machine, kind: str) -> Evidence:
    chip = good_chip()
    if kind == "snp":
        return platform().evidence(signed(body(), chip.key), chip.leaf)
    return machine.evidence("orchestrator", REPORT_DATA)


@attack("H19", any="stopped: emulation is refused where it was not agreed")
@pytest.mark.parametrize("kind", ["tdx", "snp"])
def test_emulated_cvms(kind: str) -> None:
    machine = Machine()
    arguments = {"report_data": REPORT_DATA, "role": "orchestrator", "at": AT}
    accepted = verify_cvm_evidence(evidence(machine, kind), trust=trust(machine, machine.policy), **arguments)  # type: ignore[arg-type]
    assert accepted.backend is Backend.EMULATED
    for policy in (*PRODUCTION, AGREED_BUT_NOT_HERE, ALLOWED_BUT_NOT_AGREED):
        with pytest.raises(VerificationFailed) as refused:
            verify_cvm_evidence(evidence(machine, kind), trust=trust(machine, policy), **arguments)  # type: ignore[arg-type]
        assert refused.value.code.split("-", 1)[1] == ("emulated" if policy is AGREED_BUT_NOT_HERE else "root-set")


def test_an_emulated_gpu(tmp_path: Path) -> None:
    world = GpuWorld.make(tmp_path)
    assert world.verify().backend is Backend.EMULATED
    agreed = EvidencePolicy(roots=("EMULATED",))
    for policy, code in (
        (GpuPolicy(), "gpu-root-set"),
        (GpuPolicy.of(EvidencePolicy(roots=("NVIDIA",)), allow_emulated=True), "gpu-root-set"),
        (GpuPolicy.of(agreed, allow_emulated=False), "gpu-emulated"),
    ):
        with pytest.raises(VerificationFailed) as refused:
            world.verify(policy=policy)
        assert refused.value.code == code
        assert [c.name for c in world.examine(policy=policy).examination if c.status == "fail"] == ["root-set"]
