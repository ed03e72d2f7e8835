"""One door for the evidence of either CPU: a holder on SEV-SNP opens the same channel, by the same call."""

from __future__ import annotations

import base64
from typing import Any

import pytest
from pydantic import ValidationError

from shared.attestation.channel import report_data, verify_holder
from shared.attestation.cpu_trust import CpuTrust
from shared.attestation.cpu_verifier import VerifiedCvm
from shared.attestation.cvm_verifier import Cvm, verify_cvm_evidence
from shared.attestation.snp_verifier import VerifiedSnp
from shared.errors import BadRequest, VerificationFailed
from shared.names import Backend
from shared.wire.visit import ChannelProof, Evidence
from tests.attestation.channel_world import (
    CHANNEL,
    ENROLLED_HOLDER,
    LIFETIME,
    MACHINE,
    channel_offer,
    channel_proof,
    holder_checks,
    orchestrator_runtime,
)
from tests.attestation.cpu_world import AT, Machine
from tests.attestation.snp_world import CHIP, REPORT_DATA, body, good_chip, platform, signed


def snp_evidence(covered: bytes = REPORT_DATA, **changes: Any) -> Evidence:
    return platform().evidence(signed(body(report_data=covered, **changes), good_chip().key), good_chip().leaf)


def both() -> CpuTrust:
    return MACHINE.trust(snp=platform().trust())


def verified(evidence: Evidence, trust: CpuTrust | None = None) -> Cvm:
    return verify_cvm_evidence(evidence, report_data=REPORT_DATA, role="data_holder", trust=trust or both(), at=AT)


def test_the_kind_chooses_the_verifier() -> None:
    tdx = verified(MACHINE.evidence("holder-north", REPORT_DATA))
    snp = verified(snp_evidence())
    assert isinstance(tdx, VerifiedCvm)
    assert isinstance(snp, VerifiedSnp)
    for cvm in (tdx, snp):
        assert (cvm.role, cvm.root_set, cvm.backend, cvm.report_data) == (
            "data_holder", "EMULATED", Backend.EMULATED, REPORT_DATA,
        )  # fmt: skip
        assert cvm.platform_id
        assert "report-data" in cvm.checks
    assert snp.platform_id == CHIP["Milan"].hex()


def test_evidence_under_the_other_kinds_name_is_refused() -> None:
    quote, report = MACHINE.evidence("holder-north", REPORT_DATA), snp_evidence()
    with pytest.raises((BadRequest, VerificationFailed)):
        verified(quote.model_copy(update={"kind": "snp-report"}))
    with pytest.raises((BadRequest, VerificationFailed)):
        verified(report.model_copy(update={"kind": "tdx-quote"}))
    with pytest.raises(ValidationError):
        Evidence(kind="az-snp-vtpm", quote="AAAA")  # type: ignore[arg-type]


def test_without_roots_for_it_snp_evidence_is_refused_with_a_remedy() -> None:
    with pytest.raises(VerificationFailed) as caught:
        verified(snp_evidence(), MACHINE.trust())
    assert caught.value.code == "evidence-kind"
    assert "snp-roots.pem" in (caught.value.remedy or "")


def test_an_older_senders_evidence_is_a_tdx_quote() -> None:
    assert Evidence.model_validate({"quote": "AAAA"}).kind == "tdx-quote"


def test_a_holder_on_snp_opens_the_channel() -> None:
    raw = orchestrator_runtime()
    proof = channel_proof(holder_checks(channel_offer(raw)))
    runtime = base64.b64decode(proof.runtime_data)
    moved = proof.model_copy(update={"evidence": snp_evidence(report_data("holder", runtime))})
    holder = opened(moved, raw)
    assert isinstance(holder.cvm, VerifiedSnp)
    diverted = proof.model_copy(update={"evidence": snp_evidence(report_data("orchestrator", runtime))})
    with pytest.raises(VerificationFailed) as caught:
        opened(diverted, raw)
    assert caught.value.code == "quote-report-data"
    other_code = proof.model_copy(
        update={"evidence": snp_evidence(report_data("holder", runtime), measurement=b"\x01" * 48)}
    )
    with pytest.raises(VerificationFailed) as caught:
        opened(other_code, raw)
    assert caught.value.code == "cvm-measurement"


def opened(proof: ChannelProof, raw: bytes) -> Any:
    return verify_holder(
        proof, channel=CHANNEL, orchestrator_runtime=raw, enrolled_key=ENROLLED_HOLDER.public, cpu=both(),
        max_lifetime_s=LIFETIME, at=AT,
    )  # fmt: skip


def test_another_installations_platform_does_not_count() -> None:
    foreign = Machine("other").trust(snp=platform().trust())
    verified(snp_evidence(), foreign)
    with pytest.raises(VerificationFailed):
        verified(MACHINE.evidence("holder-north", REPORT_DATA), foreign)
