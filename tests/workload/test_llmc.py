"""llm.c's model file, and llm.c's own training loop written out, against a program trained over visits."""

from __future__ import annotations

import functools
from pathlib import Path

import numpy as np
import pytest
import safetensors.torch
import torch

from gpu_agent.workload import llmc
from gpu_agent.workload.builder import build
from gpu_agent.workload.llmc import read_llmc_model, write_llmc_model
from gpu_agent.workload.loader import load_program
from gpu_agent.workload.programs.gpt2 import GPT2Config, held_out_loss
from gpu_agent.workload.tensors import initial_tensors, read_weights
from shared.claims.training import AdamW, TrainingOptions
from shared.errors import InvalidData
from tests.workload.llmc_reference import ReferenceGPT2, reference_losses
from tests.workload.workload_helpers import Built, place

CONFIG = GPT2Config(context=64, vocab=300, layers=2, heads=2, width=32)
SIZES = {"context": 64, "vocab": 300, "layers": 2, "heads": 2, "width": 32}
B, T, STEPS = 4, 64, 30


@functools.cache
def _built(seed: int) -> Built:
    return build("gpt2", seed=seed, **SIZES)


def _initial() -> dict[str, np.ndarray]:
    archive, weights = _built(17)
    return {name: t.numpy() for name, t in initial_tensors(load_program(archive).manifest, weights).items()}


@pytest.fixture(scope="module")
def model_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("llmc") / "gpt2.bin"
    write_llmc_model(path, CONFIG, _initial())
    return path


def test_round_trip(model_file: Path, tmp_path: Path) -> None:
    config, tensors = read_llmc_model(model_file)
    assert config == CONFIG
    initial = _initial()
    assert set(tensors) == set(initial)
    assert all(np.array_equal(tensors[name], initial[name]) for name in initial)
    write_llmc_model(tmp_path / "again.bin", config, tensors)
    assert (tmp_path / "again.bin").read_bytes() == model_file.read_bytes()


def test_header_and_order_are_llmcs(model_file: Path) -> None:
    """Read as llm.c does: 256 int32, then its sixteen tensors one after another, the vocabulary padded to 384."""
    data = model_file.read_bytes()
    header = np.frombuffer(data, "<i4", 256)
    assert header[:8].tolist() == [20240326, 3, 64, 300, 2, 2, 32, 384]
    assert not header[8:].any()
    reference = ReferenceGPT2(model_file)
    assert len(data) == 1024 + 4 * sum(p.numel() for p in reference.params.values())
    initial = _initial()
    assert np.array_equal(reference.params["qkvw"][1].detach().numpy(), initial["h.1.attn.c_attn.weight"])
    assert np.array_equal(reference.params["fcprojb"][0].detach().numpy(), initial["h.0.mlp.c_proj.bias"])
    assert not reference.params["wte"][300:].any()


FAULTS = {
    "magic": lambda data: b"\0" + data[1:],
    "version": lambda data: data[:4] + (5).to_bytes(4, "little") + data[8:],
    "short": lambda data: data[:-4],
    "long": lambda data: data + bytes(4),
    "empty": lambda _: b"",
    "sizes": lambda data: data[:20] + bytes(4) + data[24:],
}


@pytest.mark.parametrize("fault", FAULTS, ids=str)
def test_other_files_are_refused(fault: str, model_file: Path, tmp_path: Path) -> None:
    bad = tmp_path / "bad.bin"
    bad.write_bytes(FAULTS[fault](model_file.read_bytes()))
    with pytest.raises(InvalidData, match=r"bad\.bin"):
        read_llmc_model(bad)


def test_a_header_of_more_layers_than_the_file_has_is_refused_before_they_are_named(
    model_file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def named(*_: object) -> None:
        pytest.fail("names were made for layers that are not there")

    monkeypatch.setattr(llmc, "_order", named)
    bad = tmp_path / "bad.bin"
    data = model_file.read_bytes()[:1024]
    bad.write_bytes(data[:16] + (2**31 - 1).to_bytes(4, "little") + data[20:])
    with pytest.raises(InvalidData, match=r"bad\.bin has 1024 bytes where its header announces"):
        read_llmc_model(bad)


def test_writing_needs_exactly_the_parameters(tmp_path: Path) -> None:
    tensors = _initial()
    with pytest.raises(InvalidData, match=r"ln_f\.bias"):
        write_llmc_model(tmp_path / "x", CONFIG, {k: v for k, v in tensors.items() if k != "ln_f.bias"})
    with pytest.raises(InvalidData, match=r"wte\.weight"):
        write_llmc_model(tmp_path / "x", CONFIG, tensors | {"wte.weight": tensors["wte.weight"][:10]})


def test_three_holders_reproduce_llmcs_losses(model_file: Path) -> None:
    """Sequential batches, B=4, T=64, AdamW lr 1e-4, no decay: 30 steps as three holders' visits of two steps each."""
    generator = np.random.default_rng(3)
    tokens = (generator.random(STEPS * B * T + 1) ** 4 * CONFIG.vocab).astype(np.uint16)

    # llm.c's dataloader: B*T + 1 tokens, then B*T further.
    windows = [tokens[step * B * T : (step + 1) * B * T + 1] for step in range(STEPS)]
    expected = reference_losses(ReferenceGPT2(model_file), windows, B, T)

    options = TrainingOptions(batch_size=B, optimizer=AdamW(lr=1e-4, betas=(0.9, 0.999), eps=1e-8, weight_decay=0.0))
    built = _built(1)
    program = load_program(built[0])
    placed = place(built, options, total_steps=STEPS)
    _, weights = read_llmc_model(model_file)
    specs = [*program.manifest.parameters]
    given = read_weights(safetensors.torch.save({k: torch.from_numpy(v) for k, v in weights.items()}), specs)
    with torch.no_grad():
        for name, tensor in given.items():
            placed.params[name].copy_(tensor)
    records = np.stack([tokens[r * T : r * T + T + 1] for r in range(STEPS * B)])
    losses: list[float] = []
    for visit in range(STEPS // 2):
        part = np.ascontiguousarray(records[visit * 2 * B : (visit + 1) * 2 * B])
        buffer = torch.from_numpy(part.view(np.uint8).reshape(-1).copy())
        losses += placed.trainer.train(buffer, 2 * B, visit * 2, 2).steps
    assert losses == pytest.approx(expected, abs=1e-4)  # the promise is 1e-2
    assert losses[-1] < losses[0] - 0.05


def test_exported_weights_load_into_the_plain_model(model_file: Path) -> None:
    """What a session exports is a safetensors file of our names; plain PyTorch gives the same held-out loss."""
    _, weights = read_llmc_model(model_file)
    exported = safetensors.torch.save({name: torch.from_numpy(value) for name, value in weights.items()})
    exported_tensors = safetensors.torch.load(exported)
    held_out = torch.randint(0, 300, (8, T + 1), generator=torch.Generator().manual_seed(2)).to(torch.uint16)
    built = _built(17)
    placed = place(built, TrainingOptions())
    loss, count = placed.trainer.evaluate(held_out.view(torch.uint8).flatten(), 8, 3)
    assert loss == pytest.approx(held_out_loss(exported_tensors, CONFIG, held_out), abs=1e-6)
    assert count == 8
