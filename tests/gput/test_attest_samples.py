"""`gput attest verify` over every published case beside this checkout: accepted and refused as its README says. Skipped where absent."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import serialization

from gput.__main__ import main
from shared.attestation.gpu_report import MODES
from tests.attestation.gpu_samples import SAMPLES as NVIDIA
from tests.attestation.gpu_samples import content as sample

TDX, SNP = NVIDIA.parent / "tdx", NVIDIA.parent / "snp"


def cases(folder: Path) -> list[Any]:
    file = folder / "cases.json"
    found: list[dict[str, Any]] = json.loads(file.read_text())["cases"] if file.is_file() else []
    absent = pytest.mark.skip(reason="no evidence samples beside this checkout (GPUT_EVIDENCE_SAMPLES)")
    return [pytest.param(case, id=case["id"]) for case in found] or [pytest.param({}, marks=absent)]


def code(capsys: pytest.CaptureFixture[str], *words: object) -> int:
    """Exit code, after a look at the manners: the verdict on stdout, one line for a refusal on stderr."""
    result = main([str(word) for word in words])
    told = capsys.readouterr()
    assert "Traceback" not in told.err
    assert ("\naccepted" in told.out) if result == 0 else ("\nrefused" in told.out), told
    assert len(told.err.splitlines()) == (0 if result == 0 else 1), told.err
    return result


def moment(case: dict[str, Any]) -> str:
    return datetime.fromtimestamp(case["time_unix"], UTC).isoformat()


@pytest.mark.parametrize("case", cases(NVIDIA))
def test_nvidia(case: dict[str, Any], tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    files: list[Path] = []
    for name in ("report", "chain", "driver_rim", "vbios_rim"):
        reference = case[name]
        if reference is not None and "#" in reference:
            files += [NVIDIA / reference.removeprefix("shared:").partition("#")[0]] if name == "report" else []
        elif reference is not None:
            files.append(tmp_path / f"{len(files)}")  # a name that says nothing
            raw = (NVIDIA / reference.removeprefix("shared:")).read_bytes()
            files[-1].write_bytes(raw if name != "report" else sample(reference))
    rules = {
        "modes": [MODES[flag] for flag in case["policy"].get("allow_modes", [0])],
        "firmware_without_id": case["policy"].get("allow_missing_fwid", False),
    }
    (tmp_path / "policy.json").write_text(json.dumps({"roots": ["NVIDIA"], "gpu": rules}))
    whole = None not in (case["driver_rim"], case["vbios_rim"])
    words = [
        "attest",
        "verify",
        *reversed(files),
        "--nonce",
        case["nonce"],
        "--at",
        case["at"],
        "--policy",
        tmp_path / "policy.json",
    ]
    found = code(capsys, *words, *([] if whole else ["--genuine-only"]))
    assert found == (0 if case["expect"] == "accept" else 4)


@pytest.mark.parametrize("case", cases(TDX))
def test_tdx(case: dict[str, Any], tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    root = x509.load_der_x509_certificate((TDX / case["root"]).read_bytes())
    foreign = "foreign" in case["root"]
    if foreign:  # Intel's own root is known without a folder
        (tmp_path / "cpu-roots.pem").write_bytes(root.public_bytes(serialization.Encoding.PEM))
    files = [TDX / case[name] for name in ("quote", "collateral", "eventlog") if case.get(name)]
    trust = ["--trust", tmp_path, "--allow-emulated"] if foreign else []
    found = code(capsys, "attest", "verify", *files, "--at", moment(case), "--genuine-only", *trust)
    assert found == (0 if case["verdict"] == "accept" else 4)
    assert (
        code(capsys, "attest", "verify", *files, "--at", moment(case), *trust) == 4
    )  # nothing was compared with anything


@pytest.mark.parametrize("case", cases(SNP))
def test_snp(case: dict[str, Any], tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    foreign = "foreign" in case["root"]
    if foreign:
        (tmp_path / "snp-roots.pem").write_bytes((SNP / case["root"]).read_bytes())
        (tmp_path / "reference.json").write_text('{"cvms": {}}')
    files = [SNP / case[name] for name in ("report", "leaf", "root") if case[name]]
    trust = ["--trust", tmp_path, "--allow-emulated"] if foreign else []
    found = code(capsys, "attest", "verify", *files, "--at", moment(case), "--genuine-only", *trust)
    assert found == (0 if case["verdict"] == "accept" else 4)


def every_file() -> list[Path]:
    return [path for folder in (NVIDIA, TDX, SNP) for path in sorted(folder.rglob("*")) if path.is_file()]


@pytest.mark.skipif(not every_file(), reason="no evidence samples beside this checkout (GPUT_EVIDENCE_SAMPLES)")
def test_every_file_can_be_inspected_or_is_politely_unknown(capsys: pytest.CaptureFixture[str]) -> None:
    unknown = []
    for path in every_file():
        result = main(["attest", "inspect", str(path), "--format", "jsonl"])
        told = capsys.readouterr()
        if result == 0:
            assert all(json.loads(line)["is"] for line in told.out.splitlines())
        else:
            assert (result, len(told.err.splitlines())) == (2, 1), (path, told.err)
            unknown.append(path.suffix if path.suffix == ".md" else path.name)
    assert set(unknown) <= {
        ".md", "cases.json", "manifest.json", "provenance.json", "claims_v3_decoded.json", "claims_v3_detached_eat.json",
        "spdm_parsed_output.json", "spdm_req_parsed_output.json", "cos-113-ccel-acpi-table.dat",
    }  # fmt: skip
