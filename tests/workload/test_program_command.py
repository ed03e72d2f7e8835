"""`gput program`: what an approver sees, without PyTorch, and what a user builds."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner

from gput.commands.program import app, parse_option
from shared.claims.archive import open_archive
from shared.claims.operators import ALLOWED
from shared.errors import BadRequest, InvalidProgram, NotFound
from tests.workload.workload_helpers import Built

runner = CliRunner()


def test_build_writes_archive_and_weights(tmp_path: Path) -> None:
    out = tmp_path / "mine.gput"
    options = ["--option", "features=3", "--option", "classes=2", "--option", "hidden=4,4", "--option", "dropout=0.5"]
    result = runner.invoke(app, ["build", "classifier", "-o", str(out), *options], catch_exceptions=False)
    assert result.exit_code == 0
    assert open_archive(out.read_bytes()).digest.hex() in result.output
    assert out.with_suffix(".safetensors").stat().st_size > 0


def test_build_finds_the_users_module_where_it_is_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "my_module_for_test.py").write_text(
        "from gpu_agent.workload.programs import builtin\n"
        "def make(width=8):\n    return builtin('gpt2', layers=1, heads=1, width=width, context=4)\n"
    )
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    result = runner.invoke(app, ["build", "my_module_for_test:make", "-o", "p.gput", "--option", "width=4"])
    assert result.exit_code == 0, result.output
    assert open_archive((tmp_path / "p.gput").read_bytes()).manifest.metadata["width"] == 4


def test_inspect_shows_what_is_approved_without_torch(tiny_gpt2: Built, tmp_path: Path) -> None:
    path = tmp_path / "gpt2.gput"
    path.write_bytes(tiny_gpt2[0])
    code = (
        "import sys; from gput.commands.program import app\n"
        "try: app(['inspect', sys.argv[1], '--format', 'json'])\n"
        "except SystemExit as e: assert not e.code\n"
        "assert not [m for m in sys.modules if m.split('.')[0] in ('torch', 'gpu_agent', 'orchestrator')]"
    )
    run = subprocess.run([sys.executable, "-c", code, str(path)], capture_output=True, text=True, check=True)
    shown = json.loads(run.stdout)
    manifest = open_archive(tiny_gpt2[0]).manifest
    assert shown["digest"] == open_archive(tiny_gpt2[0]).digest.hex()
    assert shown["operators"] == list(manifest.operators)
    assert shown["parameters"] == 256 * 32 + 16 * 32 + 2 * (12 * 32 * 32 + 13 * 32) + 2 * 32
    assert shown["memory_bytes"]["optimiser"] == 2 * shown["memory_bytes"]["gradients"]
    assert shown["records"][0]["name"] == "tokens"
    assert shown["draws_random_numbers"] is False


def test_inspect_as_a_table(noisy_classifier: Built, tmp_path: Path) -> None:
    path = tmp_path / "c.gput"
    path.write_bytes(noisy_classifier[0])
    output = runner.invoke(app, ["inspect", str(path)], catch_exceptions=False).output
    for words in ("features: float32 [6]", "label: int64 [] in [0, 2]", "dropout", "layers.1.running_mean"):
        assert words in output


def test_bad_files_are_named(tmp_path: Path) -> None:
    with pytest.raises(NotFound, match=r"absent\.gput"):
        runner.invoke(app, ["inspect", str(tmp_path / "absent.gput")], catch_exceptions=False)
    (tmp_path / "bad.gput").write_bytes(b"\x80\x04.")
    with pytest.raises(InvalidProgram, match="not a gput-program/1 archive"):
        runner.invoke(app, ["inspect", str(tmp_path / "bad.gput")], catch_exceptions=False)


def test_options_and_operators() -> None:
    assert [parse_option(t)[1] for t in ("a=1", "a=0.5", "a=true", "a=64,64", "a=x=y")] == [
        1,
        0.5,
        True,
        "64,64",
        "x=y",
    ]
    with pytest.raises(BadRequest, match="name=value"):
        parse_option("layers")
    listed = json.loads(runner.invoke(app, ["operators", "--format", "json"], catch_exceptions=False).output)
    assert sorted(name for row in listed for name in row["operators"]) == sorted(ALLOWED)
