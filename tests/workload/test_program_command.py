"""`gput program`: what an approver sees, without PyTorch, and what a user builds."""

from __future__ import annotations

import json
import logging
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from typer.testing import CliRunner

from gpu_agent.workload.user_code import quiet
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


MINE = """import torch
from torch import nn
from gpu_agent.workload.source import ProgramSource
from shared.claims.records import RecordField, RecordSchema

RECORDS = RecordSchema(fields=(RecordField(name="x", dtype="float32", shape=(4,)),))

class Branches(nn.Linear):
    def forward(self, x):
        y = super().forward(x)
        return y if float(y.sum()) > 0 else -y  # line 11

def made(model):
    return ProgramSource("mine", model, lambda model, batch: model(batch["x"]).pow(2).sum(1), RECORDS)  # line 14

def value(): raise ValueError("a mistake of mine")  # line 16
def field(): return RecordField(name="x", dtype="float99", shape=(4,))  # line 17
def layer(width=3): return made(nn.Linear("3", 16))  # line 18
def width(): return made(nn.Linear(5, 16))
def branches(): return made(Branches(4, 4))
def no_instance(): return made(nn.Linear)
"""
MISTAKES = {
    "value": "'MODULE:value' raised ValueError: a mistake of mine (MODULE.py, line 16, in value)",
    "field": "RecordField: dtype: Input should be 'uint8', 'uint16', 'int32', 'int64' or 'float32' (MODULE.py, line 17, in field)",
    "layer": "(MODULE.py, line 18, in layer)",
    "width": "RuntimeError: a and b must have same reduction dim, but got [s38, 4] X [5, 16]. (MODULE.py, line 14, in <lambda>)",
    "branches": "(MODULE.py, line 11, in forward)",
    "no_instance": "The model of 'MODULE:no_instance' is no torch.nn.Module",
}
MODULES = {"syntax": "def f(:\n", "elsewhere": "\nimport nowhere_to_be_found\n", "at_once": "\n1 / 0\n"}


@pytest.fixture
def mine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[str], str]]:
    """Writes a module under a name of its own where commands are run; its name."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    names = list[str]()

    def written(text: str) -> str:
        names.append(f"mine_{tmp_path.name}".replace("-", "_"))
        Path(f"{names[-1]}.py").write_text(text)
        return names[-1]

    yield written
    for name in names:
        sys.modules.pop(name, None)


@pytest.mark.parametrize("function", MISTAKES)
def test_a_mistake_in_the_users_module_is_told_by_its_line(function: str, mine: Callable[[str], str]) -> None:
    module = mine(MINE)
    with pytest.raises(InvalidProgram) as refused:
        runner.invoke(app, ["build", f"{module}:{function}", "-o", "p.gput"], catch_exceptions=False)
    assert MISTAKES[function].replace("MODULE", module) in refused.value.detail


def test_nothing_is_shown_of_pytorchs_insides(mine: Callable[[str], str]) -> None:
    """In a process of its own: PyTorch logs and prints to the standard error that it found when it was imported."""
    code = """
import sys
from gpu_agent.workload.builder import build
from shared.errors import InvalidProgram
sys.path.insert(0, "")
for name in sys.argv[1:]:
    try:
        build(name)
    except InvalidProgram as error:
        print(error.code)
"""
    module = mine(MINE)
    command = [sys.executable, "-c", code, f"{module}:width", f"{module}:branches"]
    environment = os.environ | {"PYTHONPATH": str(Path(__file__).parents[2])}
    done = subprocess.run(command, capture_output=True, text=True, check=True, env=environment)
    assert (done.stdout, done.stderr) == ("export-failed\n" * 2, "")


@pytest.mark.parametrize(("name", "words"), [
    ("syntax", "SyntaxError: invalid syntax (MODULE.py, line 1)"),
    ("elsewhere", "No module named 'nowhere_to_be_found' (MODULE.py, line 2, in <module>)"),
    ("at_once", "ZeroDivisionError: division by zero (MODULE.py, line 2, in <module>)"),
])  # fmt: skip
def test_a_module_that_cannot_be_imported_is_told_by_its_line(
    name: str, words: str, mine: Callable[[str], str]
) -> None:
    module = mine(MODULES[name])
    with pytest.raises(InvalidProgram) as refused:
        runner.invoke(app, ["build", f"{module}:program", "-o", "p.gput"], catch_exceptions=False)
    assert words.replace("MODULE", module) in refused.value.detail


@pytest.mark.parametrize(("target", "option", "words"), [
    ("nowhere_to_be_found:program", "a=1", "No module named"),
    ("MODULE:absent", "a=1", "no function of that name"),
    ("MODULE:RECORDS", "a=1", "no function of that name"),
    ("MODULE:layer", "depth=1", "unexpected keyword argument 'depth'"),
])  # fmt: skip
def test_a_wrong_target_or_option_is_the_callers(
    target: str, option: str, words: str, mine: Callable[[str], str]
) -> None:
    command = ["build", target.replace("MODULE", mine(MINE)), "-o", "p.gput", "--option", option]
    with pytest.raises(BadRequest, match=words):
        runner.invoke(app, command, catch_exceptions=False)


def test_what_is_written_while_all_goes_well_is_passed_on(capsys: pytest.CaptureFixture[str]) -> None:
    with quiet():
        print("a warning", file=sys.stderr)
    assert capsys.readouterr().err == "a warning\n"
    assert logging.root.manager.disable < logging.CRITICAL


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
