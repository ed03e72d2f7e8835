"""Published NVIDIA evidence (H100, GB100) under NVIDIA's own roots: every case as its README says, and forgeries made from it."""

from __future__ import annotations

import json
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest

from shared.attestation import gpu_chain, gpu_rim, p384_chain
from shared.attestation.gpu_policy import GpuTrust
from shared.attestation.gpu_report import parse_report
from shared.attestation.gpu_verifier import GpuPolicy, examine_gpu_evidence, verify_gpu_evidence
from shared.attestation.results import CheckStatus
from shared.errors import VerificationFailed
from shared.names import Backend
from tests.attestation.gpu_evidence_world import EMULATED, GpuWorld
from tests.attestation.gpu_samples import (
    CASES,
    DRIVER_RIM,
    H100,
    SAMPLES,
    VBIOS_RIM,
    content,
    evidence,
    given,
    h100,
    needs_samples,
)
from tests.cpu_time import cpu_seconds

pytestmark = needs_samples
# Which check stands first against each case that is not accepted; its stage in cases.json in our words.
REFUSED = {
    "n03": ("driver-rim-time", CheckStatus.EXPIRED), "n04": ("nonce", CheckStatus.FAIL),
    "n06": ("firmware-id", CheckStatus.NOT_CHECKED), "n07": ("measurements", CheckStatus.FAIL),
    "n09": ("measurements", CheckStatus.FAIL), "n12": ("feature-flag", CheckStatus.FAIL),
    "n14": ("firmware-id", CheckStatus.FAIL), "n15": ("certificates", CheckStatus.FAIL),
    "n16": ("certificates", CheckStatus.FAIL), "n17": ("certificates", CheckStatus.FAIL),
}  # fmt: skip


def failed(**arguments: Any) -> set[str]:
    """Names of the checks that failed."""
    return {c.name for c in examine_gpu_evidence(**arguments).examination if c.status is CheckStatus.FAIL}


@pytest.mark.parametrize("case", CASES, ids=lambda case: str(case["id"]))
def test_published_case(case: dict[str, Any]) -> None:
    arguments = evidence(case)
    found = examine_gpu_evidence(**arguments)
    refused = found.examination.refused(arguments["policy"].tolerated())
    if case["expect"] == "accept":
        assert refused is None
        gpu = verify_gpu_evidence(**arguments)
        assert (gpu.root_set, gpu.backend) == ("NVIDIA", Backend.HARDWARE)
        return
    assert refused is not None
    assert (refused.name, refused.status) == REFUSED[case["id"][:3]]
    with pytest.raises(VerificationFailed) as caught:
        verify_gpu_evidence(**arguments)
    assert caught.value.code == refused.code
    if case["mismatch"]:
        assert found.comparison is not None
        assert [mismatch.index for mismatch in found.comparison.mismatches] == case["mismatch"]
        assert refused.indices == tuple(index + 1 for index in case["mismatch"])


def test_every_case_is_known() -> None:
    assert len(CASES) == 17
    assert set(REFUSED) == {case["id"][:3] for case in CASES if case["expect"] != "accept"}


def test_what_was_compared() -> None:
    found = examine_gpu_evidence(**h100())
    assert found.comparison is not None
    assert found.comparison.compared == 20 + 12  # index 35 is left out: NVDEC0 is disabled
    assert found.driver.rim is not None
    assert len(found.driver.rim.golden) == 21
    alone = next(case for case in CASES if case["id"].startswith("n08"))
    report_only = examine_gpu_evidence(**evidence(alone)).examination
    assert report_only.find("measurements").status is CheckStatus.NOT_CHECKED
    assert report_only.refused(GpuPolicy().tolerated()) == report_only.find("driver-rim")


def test_expired_is_not_forged() -> None:
    late = datetime.fromisoformat("2026-11-21T00:00:00Z").timestamp()
    found = examine_gpu_evidence(**h100(at=late)).examination
    assert {check.name for check in found if check.status is CheckStatus.EXPIRED} == {
        "driver-rim-time",
        "vbios-rim-time",
    }
    assert not [check for check in found if check.status is CheckStatus.FAIL]
    early = datetime.fromisoformat("2021-01-01T00:00:00Z").timestamp()
    assert "not valid yet" in examine_gpu_evidence(**h100(at=early)).examination.find("certificate-time").reason
    lenient = h100()["policy"]
    rules = lenient.rules.model_copy(update={"expired_reference_values": True})
    assert verify_gpu_evidence(**h100(at=late, policy=GpuPolicy(rules=rules))).driver_version == "550.90.07"


def test_parser_agrees_with_nvidias() -> None:
    oracle = json.loads((SAMPLES / "h100-580.159.03" / "spdm_parsed_output.json").read_text())
    report = parse_report(content("shared:h100-580.159.03/attestation_report.txt"))
    assert report.responder_nonce.hex() == oracle["Nonce"].removeprefix("0x")
    assert report.signature.hex() == oracle["Signature"].removeprefix("0x")
    blocks = oracle["MeasurementRecord"]["MeasurementBlocks"]
    assert [value.hex() for value in report.measurements] == [
        blocks[str(number)]["DMTFSpecMeasurementValue"].removeprefix("0x") for number in range(1, 65)
    ]
    assert (report.driver_version, report.vbios_version) == ("580.159.03", "96.00.74.00.20")


# ------------------------------------------------------------------ forged from what is genuine


def test_the_published_forged_manifest() -> None:
    forged = content("shared:negative/driver_rim_incorrect_signature.xml")
    wrong = failed(**h100(trust=given(forged, content(VBIOS_RIM))))
    assert wrong == {"driver-rim-version", "driver-rim-signature"}
    other = content("shared:rim/NV_GPU_DRIVER_GH100_550.144.03.xml")
    assert failed(**h100(trust=given(other, content(VBIOS_RIM)))) == {"driver-rim-version"}


def test_manifests_exchanged_for_one_another() -> None:
    swapped = given(content(VBIOS_RIM), content(DRIVER_RIM))
    assert failed(**h100(trust=swapped)) == {"driver-rim-version", "vbios-rim-version"}


@pytest.mark.parametrize("at", [40, 50, 45 + 55 * 9 + 20, 3566, 3598, 3605, 4020, 4116])
def test_a_flipped_bit_in_any_region_of_the_report(at: int) -> None:
    report = bytearray(content(f"{H100}/attestation_report.dat"))
    report[at] ^= 0x01
    assert failed(**h100(report=bytes(report)))


@pytest.mark.parametrize("part", ["colloquialVersion", "Hash0", "SignatureValue", "DigestValue", "X509Certificate"])
def test_a_changed_character_in_any_region_of_a_manifest(part: str) -> None:
    data = bytearray(content(DRIVER_RIM))
    at = data.index(part.encode()) + len(part) + (12 if part != "Hash0" else 20)
    data[at] = ord("1") if data[at] != ord("1") else ord("2")
    wrong = failed(**h100(trust=given(bytes(data), content(VBIOS_RIM))))
    assert wrong & {"driver-rim", "driver-rim-signature", "driver-rim-chain"}


def test_genuine_parts_that_do_not_belong_together() -> None:
    other = content("h100-580.159.03/cert_chain.pem").decode()
    assert "signature" in failed(**h100(chain_pem=other))
    blackwell = content("gb100-575.32/cert_chain.pem").decode()
    assert "driver-rim-version" in failed(**h100(chain_pem=blackwell))  # GB100 has manifests of its own


def test_no_root_stands_in_for_another(tmp_path: Path) -> None:
    emulated, nvidia = GpuWorld.make(tmp_path), given(content(DRIVER_RIM), content(VBIOS_RIM))
    assert {"root", "driver-rim-version"} <= failed(**h100(trust=emulated.given()))
    mixed = GpuTrust(nvidia.roots, emulated.trust.rim_roots, emulated.given().rims)
    assert {"driver-rim-chain", "vbios-rim-chain"} <= failed(**h100(trust=mixed))
    with pytest.raises(VerificationFailed) as caught:
        emulated.verify(trust=nvidia, policy=EMULATED)
    assert caught.value.code == "gpu-root-unknown"
    foreign = GpuTrust(emulated.trust.roots, nvidia.rim_roots, nvidia.rims)
    checks = emulated.examine(trust=foreign).examination
    assert checks.find("driver-rim-chain").code == "gpu-rim-root-set"


def test_a_complete_set_takes_less_than_50_ms() -> None:
    """Nothing remembered: five certificates, the report, two manifests with four certificates each."""
    arguments = h100()

    def verified() -> None:
        for remembered in (
            gpu_chain.parse_chain, gpu_rim.parse_rim, gpu_rim._check_signature, p384_chain.check_links,
        ):  # fmt: skip
            remembered.cache_clear()
        verify_gpu_evidence(**arguments)

    assert cpu_seconds(verified, 0.050) < 0.050
