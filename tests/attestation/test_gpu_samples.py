"""Published NVIDIA evidence (H100, GB100) under NVIDIA's own root, where the sample folder is present. Reads it, copies nothing."""

from __future__ import annotations

import base64
import json
import os
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest

from shared.attestation.gpu_report import parse_report
from shared.attestation.gpu_verifier import GpuProfile, GpuReference, GpuRoots, VerifiedGpu, verify_gpu_evidence
from shared.errors import GputError, VerificationFailed
from shared.names import Backend

_BESIDE = Path(__file__).resolve().parents[3] / "shared" / "evidence"
SAMPLES = Path(os.environ.get("GPUT_EVIDENCE_SAMPLES", _BESIDE)) / "nvidia"
CASES: list[dict[str, Any]] = (
    json.loads((SAMPLES / "cases.json").read_text())["cases"] if (SAMPLES / "cases.json").is_file() else []
)
# Without RIMs: what becomes of each published case here; the RIM cases end as their report alone does.
EXPECTED = {
    "n04": "gpu-nonce", "n05": "gpu-fwid", "n06": "gpu-fwid", "n07": "gpu-fwid", "n11": "gpu-feature-flag",
    "n12": "gpu-feature-flag", "n14": "gpu-fwid", "n15": "gpu-chain-malformed", "n16": "gpu-chain-malformed",
    "n17": "gpu-chain-malformed",
}  # fmt: skip
pytestmark = pytest.mark.skipif(not CASES, reason="no evidence samples beside this checkout (GPUT_EVIDENCE_SAMPLES)")


def content(reference: str) -> bytes:
    path, _, inner = reference.removeprefix("shared:").partition("#")
    data = (SAMPLES / path).read_bytes()
    if inner:
        index, field = inner.strip("/").split("/")
        return base64.b64decode(json.loads(data)[int(index)][field])
    return bytes.fromhex(data.decode().strip()) if path.endswith(".txt") else data


def appraise(case: dict[str, Any]) -> VerifiedGpu:
    """The case's evidence against reference values equal to its own measurements: genuineness is what is judged."""
    report = content(case["report"])
    parsed = parse_report(report)
    own = {str(number): (value.hex(),) for number, value in enumerate(parsed.measurements, start=1)}
    profile = GpuProfile(driver_version=parsed.driver_version, vbios_version=parsed.vbios_version, measurements=own)
    return verify_gpu_evidence(
        report, content(case["chain"]).decode(), nonce=bytes.fromhex(case["nonce"]),
        roots=GpuRoots.load(SAMPLES / "roots" / "nvidia_device_identity_ca.pem"), reference=GpuReference((profile,)),
        allowed_roots=("NVIDIA",), allow_emulated=False, at=datetime.fromisoformat(case["at"]).timestamp(),
    )  # fmt: skip


@pytest.mark.parametrize("case", CASES, ids=lambda case: str(case["id"]))
def test_published_case(case: dict[str, Any]) -> None:
    expected = EXPECTED.get(case["id"][:3])
    if expected is not None:
        with pytest.raises(GputError) as caught:
            appraise(case)
        assert caught.value.code == expected
        return
    gpu = appraise(case)
    assert (gpu.root_set, gpu.backend) == ("NVIDIA", Backend.HARDWARE)


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


def test_a_real_device_with_other_firmware_is_told_from_a_forged_one() -> None:
    case = next(case for case in CASES if case["id"].startswith("n08"))
    parsed = parse_report(content(case["report"]))
    golden = {"9": (parsed.measurements[8].hex(),), "10": ("00" * 48,)}
    profile = GpuProfile(driver_version=parsed.driver_version, vbios_version=parsed.vbios_version, measurements=golden)
    assert profile.mismatches(parsed.measurements) == [10]
    with pytest.raises(VerificationFailed) as caught:
        verify_gpu_evidence(
            content(case["report"]), content(case["chain"]).decode(), nonce=bytes.fromhex(case["nonce"]),
            roots=GpuRoots.load(SAMPLES / "roots" / "nvidia_device_identity_ca.pem"), reference=GpuReference((profile,)),
            allowed_roots=("NVIDIA",), allow_emulated=False, at=datetime.fromisoformat(case["at"]).timestamp(),
        )  # fmt: skip
    assert caught.value.code == "gpu-measurements"
