"""Published NVIDIA evidence beside this checkout, read where it lies and copied nowhere. Knows the sample folder's form, no expectation."""

from __future__ import annotations

import base64
import json
import os
from datetime import datetime
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from shared.attestation.gpu_report import MODES
from shared.attestation.gpu_verifier import GpuPolicy, GpuRoots, GpuTrust
from shared.claims.manifest import GpuRules
from tests.attestation.given_rims import GivenRims

_BESIDE = Path(__file__).resolve().parents[3] / "shared" / "evidence"
SAMPLES = Path(os.environ.get("GPUT_EVIDENCE_SAMPLES", _BESIDE)) / "nvidia"
PRESENT = (SAMPLES / "cases.json").is_file()
CASES: list[dict[str, Any]] = json.loads((SAMPLES / "cases.json").read_text())["cases"] if PRESENT else []
needs_samples = pytest.mark.skipif(
    not PRESENT, reason="no evidence samples beside this checkout (GPUT_EVIDENCE_SAMPLES)"
)
H100 = "h100-550.90.07"
DRIVER_RIM = f"{H100}/driver_rim_NV_GPU_DRIVER_GH100_550.90.07.xml"
VBIOS_RIM = f"{H100}/vbios_rim_NV_GPU_VBIOS_1010_0200_882_96009F0001.xml"
GOOD_DAY = datetime.fromisoformat("2025-09-01T00:00:00Z").timestamp()


@cache
def content(reference: str) -> bytes:
    """A file's bytes; hex text is decoded, and `#index/field` picks base64 out of JSON."""
    path, _, inner = reference.removeprefix("shared:").partition("#")
    data = (SAMPLES / path).read_bytes()
    if inner:
        index, field = inner.strip("/").split("/")
        return base64.b64decode(json.loads(data)[int(index)][field])
    return bytes.fromhex(data.decode().strip()) if path.endswith(".txt") else data


def given(driver: bytes | None = None, vbios: bytes | None = None) -> GpuTrust:
    """NVIDIA's published roots, and these manifests."""
    device = GpuRoots.load(SAMPLES / "roots" / "nvidia_device_identity_ca.pem")
    rim = GpuRoots.load(SAMPLES / "roots" / "nvidia_corim_signing_root_ca.pem", "rim")
    return GpuTrust(device, rim, GivenRims(driver, vbios))


def evidence(case: dict[str, Any]) -> dict[str, Any]:
    """A case's arguments for the verifier. The cases' policy accepts evidence for which no manifest is supplied."""
    driver, vbios = (content(case[name]) if case[name] else None for name in ("driver_rim", "vbios_rim"))
    rules = GpuRules(
        modes=tuple(MODES[flag] for flag in case["policy"].get("allow_modes", [0])),
        firmware_without_id=case["policy"].get("allow_missing_fwid", False),
    )
    return {
        "report": content(case["report"]), "chain_pem": content(case["chain"]).decode(),
        "nonce": bytes.fromhex(case["nonce"]), "trust": given(driver, vbios),
        "policy": GpuPolicy(rules=rules, unappraised=None in (driver, vbios)),
        "at": datetime.fromisoformat(case["at"]).timestamp(),
    }  # fmt: skip


def h100(**changes: Any) -> dict[str, Any]:
    """Arguments of the complete 550.90.07 set, changed as a test likes."""
    case = next(case for case in CASES if case["id"].startswith("n01"))
    return evidence(case) | changes
