"""The policy of GPU evidence: strict by default, agreed in the manifest, readable from manifests of before. Knows no evidence."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest
from pydantic import ValidationError

from shared.attestation.gpu_policy import GpuPolicy
from shared.attestation.results import CheckStatus
from shared.claims.manifest import EvidencePolicy, GpuRules, Manifest, parse_manifest
from shared.errors import VerificationFailed
from tests.orchestrator.orchestrator_samples import manifest

OCSP = {
    (f"{chain}ocsp", status) for chain in ("", "driver-rim-", "vbios-rim-") for status in ("not-checked", "expired")
}


def refused(policy: GpuPolicy, pdi: str) -> bool:
    try:
        policy.check_device(pdi)
    except VerificationFailed as error:
        return error.code == "gpu-device"
    return False


def test_the_default_denies() -> None:
    policy = GpuPolicy()
    assert (policy.roots, policy.allow_emulated, policy.rules.modes) == (("NVIDIA",), False, ("spt",))
    assert policy.tolerated() == OCSP
    assert replace(policy, rules=GpuRules(revocation="required")).tolerated() == frozenset()
    with pytest.raises(VerificationFailed) as caught:
        policy.check_root_set("EMULATED")
    assert caught.value.code == "gpu-root-set"


def test_each_rule_tolerates_its_own_check_only() -> None:
    for rules, more in (
        (GpuRules(firmware_without_id=True), {("firmware-id", "not-checked")}),
        (GpuRules(expired_reference_values=True), {("driver-rim-time", "expired"), ("vbios-rim-time", "expired")}),
        (GpuRules(certificate_hold=True), set()),
        (GpuRules(modes=("ppcie",)), set()),
    ):
        assert GpuPolicy(rules=rules).tolerated() - OCSP == more
    everything = GpuPolicy(
        rules=GpuRules(firmware_without_id=True, expired_reference_values=True, certificate_hold=True), unappraised=True
    ).tolerated()
    assert CheckStatus.FAIL not in {status for _, status in everything}
    assert not {"nonce", "signature", "root", "links", "device-type", "root-set", "certificate-time"} & {
        name for name, _ in everything
    }


def test_devices() -> None:
    agreed = GpuPolicy(rules=GpuRules(devices=("0" * 16, "1" * 16)))
    assert [refused(agreed, digit * 16) for digit in "012"] == [False, False, True]
    pinned = replace(agreed, device="1" * 16)
    assert [refused(pinned, digit * 16) for digit in "012"] == [True, False, True]
    assert refused(replace(agreed, device="2" * 16), "2" * 16)  # pinned, but not agreed on
    assert not refused(GpuPolicy(), "2" * 16)


@pytest.mark.parametrize(
    "rules",
    [
        {"modes": []},
        {"modes": ["any"]},
        {"devices": ["xyz"]},
        {"devices": ["A" * 16]},
        {"revocation": "never"},
        {"more": 1},
    ],
)
def test_rules_that_say_nothing_sensible(rules: dict[str, object]) -> None:
    with pytest.raises(ValidationError):
        EvidencePolicy.model_validate({"roots": ["NVIDIA"], "gpu": rules})


def test_a_manifest_of_before_keeps_its_bytes_and_digest() -> None:
    before = manifest()
    assert b'"gpu"' not in before.canonical()
    assert parse_manifest(before.canonical()).digest() == before.digest()
    text = json.loads(before.canonical())
    text["gpu_evidence"]["gpu"] = {"modes": ["spt", "mpt"]}
    after = Manifest.model_validate(text)
    assert after.digest() != before.digest()
    assert parse_manifest(after.canonical()) == after
    assert GpuPolicy.of(after.gpu_evidence, allow_emulated=True).rules.modes == ("spt", "mpt")
    assert GpuPolicy.of(before.gpu_evidence, allow_emulated=True).rules == GpuRules()


@pytest.mark.parametrize("role", ["orchestrator_evidence", "roster"])
def test_rules_for_a_gpu_belong_to_a_gpu(role: str) -> None:
    text = json.loads(manifest().canonical())
    policy = text["orchestrator_evidence"] if role == "orchestrator_evidence" else text["roster"][0]["evidence"]
    policy["gpu"] = {}
    with pytest.raises(ValidationError, match="belong into gpu_evidence"):
        Manifest.model_validate(text)


def test_the_schema_still_names_every_field() -> None:
    for mode in ("validation", "serialization"):
        schema = EvidencePolicy.model_json_schema(mode=mode)  # type: ignore[arg-type]
        assert set(schema["properties"]) == {"roots", "measurements", "max_age_s", "gpu", "tdx", "snp"}
