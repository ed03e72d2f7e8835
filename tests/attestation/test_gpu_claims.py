"""NVIDIA's claims from our examination, against those that NVIDIA's own service gave for the same report."""

from __future__ import annotations

import base64
import json
from dataclasses import replace
from datetime import datetime
from typing import Any

import pytest

from shared.attestation.gpu_claims import nvidia_claims
from shared.attestation.gpu_examination import examine_gpu_evidence
from tests.attestation.gpu_evidence_world import EMULATED, Factory, GpuWorld
from tests.attestation.gpu_samples import CASES, H100, SAMPLES, evidence, h100, needs_samples

TOKEN = {"iss", "exp", "iat", "nbf", "jti"}  # of the token that carries the claims, not of the GPU
DEVICE_DAY, RIM_DAY = "2025-08-21T12:00:00Z", "2025-10-24T12:00:00Z"  # when the published OCSP responses were fresh
OURS = {"x-nvidia-device-type", "x-nvidia-gpu-claims-version", "x-nvidia-mismatch-measurement-records"}


def claims_at(moment: str) -> dict[str, Any]:
    stapled = [base64.b64decode(path.read_bytes()) for path in sorted((SAMPLES / H100 / "ocsp").glob("*.b64"))]
    at = datetime.fromisoformat(moment).timestamp()
    return nvidia_claims(examine_gpu_evidence(**h100(at=at, stapled=stapled)))


def decoded() -> dict[str, Any]:
    return dict(json.loads((SAMPLES / H100 / "claims_v3_decoded.json").read_text())["GPU-0"])


def carried() -> dict[str, Any]:
    """The claims inside of the detached EAT's token."""
    _, tokens = json.loads((SAMPLES / H100 / "claims_v3_detached_eat.json").read_text())
    payload = tokens["GPU-0"].split(".")[1]
    return dict(json.loads(base64.urlsafe_b64decode(payload + "=" * (-len(payload) % 4))))


@needs_samples
@pytest.mark.parametrize("published", [decoded, carried])
def test_the_same_names_and_values_as_nvidias(published: Any) -> None:
    """OCSP responses live for a day and the published ones are of two days, so each chain is compared on its own."""
    theirs = {name: value for name, value in published().items() if name not in TOKEN}
    device_day, rim_day = claims_at(DEVICE_DAY), claims_at(RIM_DAY)
    assert set(device_day) == set(theirs) | OURS
    chains = {name for name in theirs if name.endswith("cert-chain")}
    for name in set(theirs) - chains:
        assert device_day[name] == theirs[name], name
    assert (
        device_day["x-nvidia-gpu-attestation-report-cert-chain"] == theirs["x-nvidia-gpu-attestation-report-cert-chain"]
    )
    for kind in ("driver", "vbios"):
        name = f"x-nvidia-gpu-{kind}-rim-cert-chain"
        assert rim_day[name] == theirs[name]
    assert device_day["x-nvidia-mismatch-measurement-records"] is None


@needs_samples
def test_a_mismatch_in_nvidias_form() -> None:
    case = next(case for case in CASES if case["id"].startswith("n07"))
    claims = nvidia_claims(examine_gpu_evidence(**evidence(case)))
    assert (claims["measres"], claims["secboot"], claims["dbgstat"]) == ("fail", None, None)
    (record,) = claims["x-nvidia-mismatch-measurement-records"]  # type: ignore[misc]
    assert (record["index"], record["goldenSize"], record["runtimeSize"]) == (9, 48, 48)
    assert record["measurementSource"] == "Firmware"
    assert record["goldenValue"] != record["runtimeValue"]
    assert claims["x-nvidia-gpu-driver-rim-fetched"] is False
    assert claims["x-nvidia-gpu-vbios-rim-signature-verified"] is True
    # Unlike NVIDIA's tools, firmware that names no id is not said to match.
    assert claims["x-nvidia-gpu-attestation-report-cert-chain-fwid-match"] is False


@needs_samples
def test_expired_and_forged_are_told_apart() -> None:
    late = datetime.fromisoformat("2026-11-21T00:00:00Z").timestamp()
    claims = nvidia_claims(examine_gpu_evidence(**h100(at=late)))
    chain = claims["x-nvidia-gpu-driver-rim-cert-chain"]
    assert isinstance(chain, dict)
    assert (chain["x-nvidia-cert-status"], claims["measres"]) == ("expired", "success")
    report = bytearray(h100()["report"])
    report[-1] ^= 1
    forged = nvidia_claims(examine_gpu_evidence(**h100(report=bytes(report))))
    assert (forged["measres"], forged["secboot"]) == ("fail", None)
    assert forged["x-nvidia-gpu-attestation-report-signature-verified"] is False


def test_claims_about_what_cannot_be_read(tmp_path_factory: pytest.TempPathFactory) -> None:
    world = GpuWorld.make(tmp_path_factory.mktemp("gpu"))
    good = nvidia_claims(world.examine())
    assert (good["measres"], good["hwmodel"], good["oemid"]) == ("success", "EMULATED GH100 A01 GSP BROM", "0")
    nothing = nvidia_claims(world.examine(b"", ""))
    assert set(nothing) == set(good)
    assert not [name for name, value in nothing.items() if value is True]
    assert nothing["measres"] == "absent"
    foreign = nvidia_claims(world.examine(trust=Factory().trust))
    assert foreign["measres"] != "success"
    unasked = nvidia_claims(world.examine(nonce=None, policy=replace(EMULATED, unappraised=True)))
    assert unasked["x-nvidia-gpu-attestation-report-nonce-match"] is False
    json.dumps(good)
