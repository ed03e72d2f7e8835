"""Appraisals of emulated evidence, and tokens of them by one key. Knows no test."""

from __future__ import annotations

from typing import Any

from shared.attestation.appraisal import Appraisal
from shared.attestation.appraisals import appraise_gpu, appraise_tdx
from shared.attestation.cpu_verifier import CpuPolicy, examine_cpu_evidence
from shared.attestation.ear import AttestationResult, claims_set, read_result, sign_result
from shared.attestation.gpu_verifier import GpuPolicy
from shared.crypto.signing import PartyKey
from tests.attestation.cpu_world import AT, Machine, evidence
from tests.attestation.gpu_evidence_world import EMULATED as EMULATED_GPU
from tests.attestation.gpu_evidence_world import GpuWorld

KEY = PartyKey.generate(lambda size: b"\x07" * size)
DATA = bytes(range(64))


def tdx(machine: Machine, policy: CpuPolicy | None = None, data: bytes | None = DATA) -> Appraisal:
    raw, policy = machine.raw(DATA), policy or machine.policy
    found = examine_cpu_evidence(
        evidence(raw), report_data=data, role="orchestrator", roots=machine.roots, reference=machine.reference,
        policy=policy, at=AT, collateral=machine.store,
    )  # fmt: skip
    return appraise_tdx(found, raw, policy)


def gpu(world: GpuWorld, policy: GpuPolicy = EMULATED_GPU, **changes: Any) -> Appraisal:
    report = world.report()
    return appraise_gpu(world.examine(report, policy=policy, **changes), report, policy)


def token(*appraisals: Appraisal, **about: str) -> str:
    return sign_result(claims_set(appraisals, build="test 1", at=int(AT), about=about), KEY)


def read(text: str) -> AttestationResult:
    return read_result(text, KEY.public, at=AT)
