"""`gput data inspect`: one report, exit code 2 when the data does not fit, no value of a record in any output."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from data_holder.datasets import inspect_dataset
from gput.__main__ import main
from shared.claims.program import ProgramManifest

MANIFEST = {
    "format": "gput-program/1",
    "name": "tabular",
    "records": {
        "fields": [
            {"name": "x", "dtype": "float32", "shape": [2], "min": -1, "max": 1},
            {"name": "y", "dtype": "int64", "min": 0, "max": 1},
        ]
    },
    "parameters": [{"name": "w", "dtype": "float32", "shape": [2]}],
    "graphs": {"train": "0" * 96, "eval": "0" * 96},
    "operators": [],
    "initial_weights": {"kind": "seed", "seed": 0, "rules": []},
}


@pytest.fixture
def program(tmp_path: Path) -> Path:
    path = tmp_path / "program.json"
    path.write_text(json.dumps(MANIFEST))
    return path


def test_report_of_fitting_data(tmp_path: Path, program: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "d.csv").write_text("a,b,label\n0.5,-0.5,1\n0.25,0,0\n")
    assert main(["data", "inspect", str(tmp_path / "d.csv"), "--program", str(program), "--format", "json"]) == 0
    report = json.loads(capsys.readouterr().out)
    assert report["fits"] is True
    assert (report["kind"], report["records"], report["samples_per_epoch"], report["record_bytes"]) == ("csv", 2, 2, 16)
    assert report["statistics"]["fields"] == {"x": {"min": -0.5, "max": 0.5}, "y": {"min": 0, "max": 1}}
    assert main(["data", "inspect", str(tmp_path / "d.csv"), "--program", str(program)]) == 0
    assert "yes" in capsys.readouterr().out


def test_report_of_data_that_does_not_fit(tmp_path: Path, program: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "d.csv").write_text("a,b,label\n0.5,-0.5,1\n31337,0,0\n0,0,0.5\n")
    for form in ("json", "table"):
        assert main(["data", "inspect", str(tmp_path / "d.csv"), "--program", str(program), "--format", form]) == 2
        printed = capsys.readouterr()
        assert "31337" not in printed.out + printed.err
        if form == "json":
            found = [(f["file"], f["row"], f["field"], f["code"]) for f in json.loads(printed.out)["findings"]]
            assert sorted(found) == [("d.csv", 3, "x", "data-out-of-range"), ("d.csv", 4, "y", "data-wrong-type")]
        else:
            assert "element 0 lies outside [-1, 1]" in printed.out
            assert "does not fit" in printed.err


def test_options_reach_the_reader(tmp_path: Path, program: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "d.txt").write_text("id;b;class;a\n1;0;1;0.5\n")
    command = [
        "data",
        "inspect",
        str(tmp_path / "d.txt"),
        "--program",
        str(program),
        "--format",
        "json",
        "--reader",
        "csv",
    ]
    assert main([*command, "--delimiter", ";", "--column", "x=a,b", "--label", "class"]) == 0
    assert json.loads(capsys.readouterr().out)["records"] == 1


@pytest.mark.parametrize(
    ("arguments", "code", "said"),
    [
        (["none.csv", "--program", "program.json"], 2, ""),
        (["d.csv", "--program", "none.gput"], 2, "program-not-found"),
        (["d.csv", "--program", "broken.json"], 2, "manifest"),
        (["d.csv", "--program", "d.csv"], 2, "archive"),
        (["d.csv", "--program", "program.json", "--reader", "xls"], 2, "xls"),
        (["d.csv", "--program", "program.json", "--column", "x"], 2, "FIELD="),
    ],
)
def test_bad_input(
    tmp_path: Path, program: Path, capsys: pytest.CaptureFixture[str], arguments: list[str], code: int, said: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    monkeypatch.chdir(tmp_path)
    (tmp_path / "d.csv").write_text("a,b,label\n0,0,0\n")
    (tmp_path / "broken.json").write_text(json.dumps({**MANIFEST, "records": {"fields": []}}))
    assert main(["data", "inspect", *arguments]) == code
    printed = capsys.readouterr()
    assert said in printed.err
    assert "Traceback" not in printed.err


def test_absent_data_is_an_answer(tmp_path: Path) -> None:
    report = inspect_dataset(tmp_path / "none.csv", ProgramManifest.model_validate(MANIFEST))
    assert not report.fits
    assert [finding.code for finding in report.findings] == ["data-not-found"]
    assert report.as_json()["statistics"] is None


def test_help_and_inspection_load_no_tensor_library(tmp_path: Path, program: Path) -> None:
    (tmp_path / "d.csv").write_text("a,b,label\n0,0,0\n")
    script = (
        "import sys\nfrom gput.__main__ import main\n"
        f"code = main(['data', 'inspect', {str(tmp_path / 'd.csv')!r}, '--program', {str(program)!r}])\n"
        "bad = {'torch', 'fastapi', 'sqlalchemy', 'httpx2'} & set(sys.modules)\n"
        "assert not bad, bad\nsys.exit(code)"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def test_a_real_program_archive(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("torch")
    from gpu_agent.workload.builder import build
    from gpu_agent.workload.programs.classifier import source

    (tmp_path / "c.gput").write_bytes(build(source(features=2, classes=3, hidden=(4,), feature_max=9.0))[0])
    (tmp_path / "fits.csv").write_text("a,b,label\n0.5,9,2\n0,0,0\n")
    (tmp_path / "not.csv").write_text("a,b,label\n0.5,9,2\n0,9.5,3\n")
    command = ["--program", str(tmp_path / "c.gput"), "--format", "json"]
    assert main(["data", "inspect", str(tmp_path / "fits.csv"), *command]) == 0
    assert json.loads(capsys.readouterr().out)["program"] == "classifier"
    assert main(["data", "inspect", str(tmp_path / "not.csv"), *command]) == 2
    found = json.loads(capsys.readouterr().out)["findings"]
    assert [(f["row"], f["field"]) for f in found] == [(3, "features"), (3, "label")]
