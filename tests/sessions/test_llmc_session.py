"""llm.c in, a session over three holders, llm.c out: the same losses as llm.c's own training loop on the same tokens."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import safetensors.numpy
import torch
from typer.testing import CliRunner

from gpu_agent.workload.llmc import read_llmc_model, write_llmc_model
from gpu_agent.workload.programs.gpt2 import GPT2, GPT2Config
from gput.commands.program import app
from shared.canonical import sha256
from shared.claims.archive import open_archive
from shared.claims.training import AdamW, TrainingOptions
from shared.errors import BadRequest, InvalidData, NotFound
from tests.sessions.session_world import Work
from tests.workload.llmc_reference import ReferenceGPT2, reference_losses
from tests.world.world_material import HOLDERS

B, T, ROUNDS, VISIT_STEPS = 4, 64, 5, 2
STEPS = ROUNDS * VISIT_STEPS * len(HOLDERS)
CONFIG = GPT2Config(context=96, vocab=300, layers=2, heads=2, width=32)  # maxT above T, padded vocabulary 384
OPTIONS = TrainingOptions(
    batch_size=B, optimizer=AdamW(lr=1e-4, betas=(0.9, 0.999), eps=1e-8, weight_decay=0.0), seed=1
)


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model file as llm.c's train_gpt2.py writes it, of plain PyTorch's initial values."""
    torch.manual_seed(5)
    model = GPT2(CONFIG)
    with torch.no_grad():
        model.wte.weight.normal_(0, 0.02)
        model.wpe.weight.normal_(0, 0.02)
    path = tmp_path_factory.mktemp("llmc") / "gpt2.bin"
    write_llmc_model(path, CONFIG, {name: value.numpy() for name, value in model.state_dict().items()})
    return path


def _shard(path: Path, tokens: np.ndarray[Any, Any]) -> Path:
    """A token shard as llm.c's data scripts write it."""
    header = np.zeros(256, "<i4")
    header[:3] = (20240520, 1, len(tokens))
    path.write_bytes(header.tobytes() + tokens.astype("<u2").tobytes())
    return path


def _tokens(holder: int) -> np.ndarray[Any, Any]:
    """Skewed tokens of one holder, somewhat more than its visits need."""
    draw = np.random.default_rng(holder)
    return (draw.random(ROUNDS * VISIT_STEPS * B * T + 1 + 100) ** (2 + holder) * CONFIG.vocab).astype(np.uint16)


def _windows() -> list[np.ndarray[Any, Any]]:
    """llm.c's batches in the order of the visits: each holder's loader goes on where its last visit ended."""
    found = []
    for round_number in range(ROUNDS):
        for holder in range(len(HOLDERS)):
            for step in range(VISIT_STEPS):
                at = (round_number * VISIT_STEPS + step) * B * T
                found.append(_tokens(holder)[at : at + B * T + 1])
    return found


def _gput(*arguments: object) -> str:
    result = CliRunner().invoke(app, [str(word) for word in arguments], catch_exceptions=False)
    assert result.exit_code == 0, result.output
    return result.stdout


def _same_length(first: Path, second: Path) -> None:
    assert first.stat().st_size == second.stat().st_size


async def test_a_session_from_llmc_to_llmc(session_world: Any, checkpoint: Path, tmp_path: Path) -> None:
    program, weights = tmp_path / "gpt2.gput", tmp_path / "weights.safetensors"
    said = _gput("llmc-import", checkpoint, "-o", weights, "--program", program, "--sequence", T)
    assert sha256(weights.read_bytes()).hex() in said.split()
    datasets = {name: _shard(tmp_path / f"{name}.bin", _tokens(number)) for number, name in enumerate(HOLDERS)}
    work = Work(program.read_bytes(), weights.read_bytes(), datasets)
    async with session_world(work) as world:
        session = await world.submit(
            rounds=ROUNDS,
            steps_per_visit=VISIT_STEPS,
            training=OPTIONS,
            privacy_floor=B,
            loss_decimals=6,
            validation=None,
        )
        await world.completed(session)
        visits = await world.visits(session)
        losses, exported = await world.losses(session), await world.model_file(session)

    assert [visit["holder"] for visit in visits] == list(HOLDERS) * ROUNDS
    reference = ReferenceGPT2(checkpoint)
    expected = reference_losses(reference, _windows(), B, T)
    assert len(losses) == STEPS == 30
    assert losses == pytest.approx(expected, abs=1e-4)  # the promise is 1e-2
    assert min(losses[-3:]) < min(losses[:3]) - 0.02

    back = tmp_path / "trained.bin"
    _gput("llmc-export", exported, "--program", program, "-o", back)
    config, tensors = read_llmc_model(back)
    assert config == CONFIG
    _same_length(back, checkpoint)
    trained = safetensors.numpy.load_file(exported)
    assert all(np.array_equal(tensors[name], trained[name]) for name in trained)
    probe = torch.from_numpy(_tokens(1)[: B * T + 1].astype(np.int64))
    with torch.no_grad():
        ours, theirs = (
            model.loss(probe[:-1].view(B, T), probe[1:].view(B, T)).item() for model in (ReferenceGPT2(back), reference)
        )
    assert ours == pytest.approx(theirs, abs=1e-4)


def test_weights_alone_are_the_checkpoints(checkpoint: Path, tmp_path: Path) -> None:
    out = tmp_path / "w.safetensors"
    assert _gput("llmc-import", checkpoint, "-o", out).split()[-1] == sha256(out.read_bytes()).hex()
    tensors = safetensors.numpy.load_file(out)
    assert tensors["wte.weight"].shape == (CONFIG.vocab, CONFIG.width)
    back = tmp_path / "back.bin"
    program = tmp_path / "p.gput"
    options = ["context=96", "vocab=300", "layers=2", "heads=2", "width=32", f"sequence={T}"]
    _gput("build", "gpt2", "-o", program, *(word for option in options for word in ("--option", option)))
    _gput("llmc-export", out, "--program", program, "-o", back)
    assert back.read_bytes() == checkpoint.read_bytes()


def test_other_files_are_refused_by_name(checkpoint: Path, tmp_path: Path, material: Any) -> None:
    out, classifier = tmp_path / "out", tmp_path / "classifier.gput"
    classifier.write_bytes(material.archive)
    assert open_archive(material.archive).manifest.name == "classifier"
    with pytest.raises(NotFound, match=r"absent\.bin"):
        _gput("llmc-import", tmp_path / "absent.bin", "-o", out)
    with pytest.raises(InvalidData, match=r"classifier\.gput"):
        _gput("llmc-import", classifier, "-o", out)
    with pytest.raises(BadRequest, match="97 tokens exceeds"):
        _gput("llmc-import", checkpoint, "-o", out, "--program", tmp_path / "p.gput", "--sequence", 97)
    with pytest.raises(BadRequest, match="classifier"):
        _gput("llmc-export", checkpoint, "--program", classifier, "-o", out)
    assert not out.exists()
