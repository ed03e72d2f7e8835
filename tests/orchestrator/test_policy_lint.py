"""Evidence policies that are contradictory, empty or met by nothing: refused at submission with field, reason and remedy."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from gput.commands.agreed import agreed_manifest as read_by_command
from orchestrator.sessions.submission import check_manifest, read_manifest
from shared.canonical import json_bytes
from shared.claims.faults import ManifestRefused, judged_policy
from shared.claims.manifest import EvidencePolicy, Manifest
from shared.claims.policy_lint import lint_manifest
from tests.orchestrator.orchestrator_samples import key, manifest
from tests.orchestrator.test_submission import known

HARDWARE = {"roots": ["INTEL", "AMD"]}
Place = tuple[str, dict[str, Any], str, str]


def tdx(**rules: Any) -> dict[str, Any]:
    return {"roots": ["INTEL"], "tdx": rules}


def snp(*roots: str, **rules: Any) -> dict[str, Any]:
    return {"roots": list(roots) or ["AMD"], "snp": rules}


CHIP = "ab" * 64
ERRORS: dict[str, Place] = {
    "emulated or real": ("gpu_evidence", {"roots": ["EMULATED", "NVIDIA"]}, "roots", "policy-contradiction"),
    "emulated or Intel": ("orchestrator_evidence", {"roots": ["INTEL", "EMULATED"]}, "roots", "policy-contradiction"),
    "GPU of Intel": ("gpu_evidence", {"roots": ["INTEL", "AMD"]}, "roots", "policy-unsatisfiable"),
    "VM of NVIDIA": ("roster.1.evidence", {"roots": ["NVIDIA"]}, "roots", "policy-unsatisfiable"),
    "root twice": ("roster.0.evidence", {"roots": ["AMD", "AMD"]}, "roots", "policy-repeated"),
    "device twice": ("gpu_evidence", {"roots": ["NVIDIA"], "gpu": {"devices": ["1" * 15 + "2"] * 2}}, "gpu.devices", "policy-repeated"),
    "mode twice": ("gpu_evidence", {"roots": ["NVIDIA"], "gpu": {"modes": ["spt", "spt"]}}, "gpu.modes", "policy-repeated"),
    "machine twice": ("orchestrator_evidence", tdx(machines=["1" * 31 + "2"] * 2), "tdx.machines", "policy-repeated"),
    "measurement of nothing": (
        "orchestrator_evidence", {**HARDWARE, "measurements": ["0" * 96]}, "measurements", "policy-unsatisfiable",
    ),
    "device of nothing": ("gpu_evidence", {"roots": ["NVIDIA"], "gpu": {"devices": ["f" * 16]}}, "gpu.devices", "policy-unsatisfiable"),
    "service TD of nothing": ("roster.0.evidence", tdx(service_tds=["0" * 96]), "tdx.service_tds", "policy-unsatisfiable"),
    "TDX rules for the GPU": ("gpu_evidence", {"roots": ["NVIDIA"], "tdx": {"allow_smt": False}}, "tdx", "policy-no-effect"),
    "TDX rules for AMD": ("roster.2.evidence", {"roots": ["AMD"], "tdx": {"allow_smt": False}}, "tdx", "policy-no-effect"),
    "one machine, and any of AMD's": (
        "roster.2.evidence", {"roots": ["INTEL", "AMD"], "tdx": {"machines": ["ab" * 16]}}, "tdx.machines", "policy-contradiction",
    ),
    "SNP rules for the GPU": ("gpu_evidence", snp("NVIDIA", allow_smt=False), "snp", "policy-no-effect"),
    "SNP rules for Intel": ("roster.2.evidence", snp("INTEL", allow_smt=False), "snp", "policy-no-effect"),
    "chip twice": ("orchestrator_evidence", snp(machines=[CHIP] * 2), "snp.machines", "policy-repeated"),
    "chip of nothing": ("orchestrator_evidence", snp(machines=["0" * 128]), "snp.machines", "policy-unsatisfiable"),
    "one chip, and any machine of Intel's": (
        "roster.2.evidence", snp("INTEL", "AMD", machines=[CHIP]), "snp.machines", "policy-contradiction",
    ),
    "clouds whose key does not count": (
        "orchestrator_evidence", snp(signing_keys=["VCEK"], csp_ids=["CN=cloud"]), "snp.csp_ids", "policy-no-effect",
    ),
    "levels of a product that does not count": (
        "roster.0.evidence", snp(products=["Genoa"], minimum_tcb={"Milan": {"snp": 24}}), "snp.minimum_tcb", "policy-no-effect",
    ),
    "worse but not best": (
        "orchestrator_evidence", tdx(tcb_statuses={"OutOfDate": 30}), "tdx.tcb_statuses", "policy-contradiction",
    ),
    "grace on the best": (
        "orchestrator_evidence", tdx(tcb_statuses={"UpToDate": 30}), "tdx.tcb_statuses.UpToDate", "policy-contradiction",
    ),
    "no grace at all": (
        "roster.0.evidence", tdx(tcb_statuses={"UpToDate": None, "OutOfDate": 0}), "tdx.tcb_statuses.OutOfDate", "policy-unsatisfiable",
    ),
    "evaluation of the far future": (
        "orchestrator_evidence", tdx(minimum_evaluation=20260101), "tdx.minimum_evaluation", "policy-unsatisfiable",
    ),
}  # fmt: skip


def with_policy(place: str, policy: dict[str, Any]) -> Manifest:
    """The sample manifest with another policy in one place."""
    document = manifest().model_dump(mode="json")
    if place.startswith("roster."):
        document["roster"][int(place.split(".")[1])]["evidence"] = policy
    else:
        document[place] = policy
    return Manifest.model_validate(document)


@pytest.mark.parametrize("name", ERRORS)
def test_refused_at_submission_with_field_reason_and_remedy(name: str, tmp_path: Path) -> None:
    place, policy, field, code = ERRORS[name]
    wrong = with_policy(place, policy)
    with pytest.raises(ManifestRefused) as refused:
        check_manifest(wrong, "gpu-0", known())
    [entry] = refused.value.errors or []
    assert (entry["field"], entry["code"]) == (f"{place}.{field}", code)
    assert entry["reason"]
    assert entry["remedy"].endswith(".")
    (tmp_path / "m.json").write_bytes(wrong.canonical())
    with pytest.raises(ManifestRefused) as told:  # the command line says the same before anything is sent
        read_by_command(tmp_path / "m.json")
    assert told.value.errors == refused.value.errors


MODELS: dict[str, tuple[dict[str, Any], str]] = {  # what one field alone can say is refused when it is read
    "no root": ({"roots": []}, "roots"),
    "unknown root": ({"roots": ["ARM"]}, "roots"),
    "no mode": ({"roots": ["NVIDIA"], "gpu": {"modes": []}}, "gpu.modes"),
    "device too short": ({"roots": ["NVIDIA"], "gpu": {"devices": ["ab"]}}, "gpu.devices"),
    "no status": (tdx(tcb_statuses={}), "tdx.tcb_statuses"),
    "revoked": (tdx(tcb_statuses={"UpToDate": None, "Revoked": None}), "tdx.tcb_statuses"),
    "chip too short": (snp(machines=["ab" * 63]), "snp.machines"),
    "level too high": (snp(minimum_tcb={"Milan": {"snp": 256}}), "snp.minimum_tcb.Milan.snp"),
    "machine too long": (tdx(machines=["0" * 33]), "tdx.machines"),
    "measurement of 64 digits": ({**HARDWARE, "measurements": ["ab" * 32]}, "measurements"),
    "too young a quote": ({**HARDWARE, "max_age_s": 1}, "max_age_s"),
    "too old a quote": ({**HARDWARE, "max_age_s": 10**9}, "max_age_s"),
    "misspelt": ({"root": ["AMD"], "roots": ["AMD"]}, "root"),
    "misspelt inside": ({**HARDWARE, "tdx": {"allow_smp": True}}, "tdx.allow_smp"),
}


@pytest.mark.parametrize("name", MODELS)
def test_what_one_field_says_is_refused_when_it_is_read(name: str) -> None:
    policy, field = MODELS[name]
    with pytest.raises(ManifestRefused) as refused:
        judged_policy(json_bytes(policy))
    assert any(entry["field"].startswith(field) and entry["remedy"] for entry in refused.value.errors or [])
    document = {**manifest().model_dump(mode="json"), "gpu_evidence": policy}
    with pytest.raises(ManifestRefused):
        read_manifest(json_bytes(document))


WARNINGS: dict[str, Place] = {
    "idle root": ("gpu_evidence", {"roots": ["NVIDIA", "AMD"]}, "roots", "policy-no-effect"),
    "product without levels": (
        "roster.0.evidence", snp(minimum_tcb={"Genoa": {"snp": 24}}), "snp.products", "policy-no-effect",
    ),
    "no limit": ("roster.0.evidence", tdx(tcb_statuses={"UpToDate": None, "OutOfDate": None}), "tdx.tcb_statuses", "policy-weak"),
    "service TD": ("roster.0.evidence", tdx(service_tds=["1" * 95 + "2"]), "tdx.service_tds", "policy-weak"),
    "expired": (
        "gpu_evidence", {"roots": ["NVIDIA"], "gpu": {"expired_reference_values": True}}, "gpu.expired_reference_values", "policy-weak",
    ),
    "on hold": ("gpu_evidence", {"roots": ["NVIDIA"], "gpu": {"certificate_hold": True}}, "gpu.certificate_hold", "policy-weak"),
}  # fmt: skip


@pytest.mark.parametrize("name", WARNINGS)
def test_what_may_be_meant_is_said_and_not_refused(
    name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    place, policy, field, code = WARNINGS[name]
    doubtful = with_policy(place, policy)
    lint = lint_manifest(doubtful)
    assert not lint.errors
    assert {(finding.field, finding.code) for finding in lint.warnings} >= {(f"{place}.{field}", code)}
    check_manifest(doubtful, "gpu-0", known())
    (tmp_path / "m.json").write_bytes(doubtful.canonical())
    assert read_by_command(tmp_path / "m.json") == doubtful
    assert f"warning: {place}.{field}" in capsys.readouterr().err


def test_a_session_that_is_emulated_in_part_only_is_warned_of() -> None:
    [finding] = lint_manifest(with_policy("gpu_evidence", {"roots": ["NVIDIA"]})).warnings
    assert (finding.code, "weakest part" in finding.reason) == ("policy-mixed", True)


def test_sound_policies_have_nothing_to_be_said_of() -> None:
    hardware = EvidencePolicy(roots=("INTEL", "AMD"))
    sound = manifest(
        gpu_evidence=EvidencePolicy(roots=("NVIDIA",)), orchestrator_evidence=hardware,
        roster=tuple(entry.model_copy(update={"evidence": hardware}) for entry in manifest().roster),
    )  # fmt: skip
    for whole in (manifest(), sound):
        assert lint_manifest(whole) == type(lint_manifest(whole))((), ())
    assert key(1).fingerprint == sound.roster[0].key
