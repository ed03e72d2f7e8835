"""`gput data evaluate`: a released model over a holder's own records, as plain PyTorch has it; and what does not fit is said."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
import safetensors.torch
import torch
from typer.testing import CliRunner

from gpu_agent.workload.loader import load_program
from gpu_agent.workload.programs.classifier import Classifier
from gpu_agent.workload.tensors import initial_tensors
from gput import evaluation
from gput.commands.data import app
from shared.errors import InvalidProgram
from tests.workload.workload_helpers import Built

runner = CliRunner()
RECORDS = 37


@pytest.fixture
def released(noisy_classifier: Built, tmp_path: Path) -> list[str]:
    """Arguments: records as CSV, the program, and a model that differs from the initial one, its running statistics included."""
    archive, weights = noisy_classifier
    tensors = initial_tensors(load_program(archive).manifest, weights)
    generator = torch.Generator().manual_seed(11)
    trained = {
        name: value + torch.rand(value.shape, generator=generator) if value.is_floating_point() else value
        for name, value in tensors.items()
    }
    safetensors.torch.save_file(trained, tmp_path / "model.safetensors")
    (tmp_path / "p.gput").write_bytes(archive)
    values = np.random.default_rng(3).normal(size=(RECORDS, 6)).round(3)
    rows = [",".join([*map(str, row), str(index % 3)]) for index, row in enumerate(values)]
    (tmp_path / "mine.csv").write_text("\n".join(["a,b,c,d,e,f,label", *rows]) + "\n")
    paths = [tmp_path / name for name in ("mine.csv", "p.gput", "model.safetensors")]
    return ["evaluate", str(paths[0]), "--program", str(paths[1]), "--model", str(paths[2])]


def plain(released: list[str], count: int = RECORDS) -> float:
    """The same in plain PyTorch: BatchNorm by its running statistics, no dropout."""
    model = Classifier(6, 3, (16, 8), batch_norm=True, dropout=0.25)
    model.load_state_dict(safetensors.torch.load_file(released[5]))
    model.eval()
    table = torch.from_numpy(np.loadtxt(released[1], delimiter=",", skiprows=1)[:count])
    with torch.no_grad():
        return float(torch.nn.functional.cross_entropy(model(table[:, :6].float()), table[:, 6].long()))


@pytest.mark.parametrize("batch", [1, 8, 64])
def test_it_is_what_plain_pytorch_says(released: list[str], batch: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(evaluation, "AT_ONCE_BYTES", 32 * 10)  # ten records (6 × 4 + 8 bytes) in memory at a time
    result = runner.invoke(app, [*released, "--batch", str(batch), "--format", "json"], catch_exceptions=False)
    found = json.loads(result.stdout)
    assert found["records"] == RECORDS
    assert found["loss"] == pytest.approx(plain(released), rel=1e-5)
    assert found["perplexity"] == pytest.approx(np.exp(plain(released)), rel=1e-4)


def test_only_the_first_records_if_so_asked(released: list[str]) -> None:
    result = runner.invoke(app, [*released, "--limit", "5", "--format", "json"], catch_exceptions=False)
    found = json.loads(result.stdout)
    assert (found["records"], found["loss"]) == (5, pytest.approx(plain(released, 5), rel=1e-5))


def test_data_that_does_not_fit_is_said_and_nothing_evaluated(released: list[str]) -> None:
    path = Path(released[1])
    path.write_text(path.read_text().replace(",2\n", ",7\n", 1))
    result = runner.invoke(app, released)
    assert result.exit_code == 2
    assert "label" in result.stdout
    assert "loss" not in result.stdout


def test_another_programs_model_is_refused(released: list[str], tiny_gpt2: Built) -> None:
    tensors = initial_tensors(load_program(tiny_gpt2[0]).manifest, tiny_gpt2[1])
    safetensors.torch.save_file({name: value.contiguous() for name, value in tensors.items()}, released[5])
    with pytest.raises(InvalidProgram, match="missing or unknown"):
        runner.invoke(app, released, catch_exceptions=False)
