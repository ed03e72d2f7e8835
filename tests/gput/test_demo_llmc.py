"""The llm.c demo's own reader: it computes what plain PyTorch does, and what is not the same model is noticed."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch

from gpu_agent.workload.llmc import read_llmc_model, write_llmc_model
from gpu_agent.workload.programs.gpt2 import GPT2, GPT2Config
from gput.local.demos import llmc_check, llmc_model
from gput.local.demos.llmc_reader import Model, mean_loss
from shared.errors import InvalidData, VerificationFailed

CONFIG = GPT2Config(context=24, vocab=300, layers=2, heads=4, width=32)  # vocabulary padded to 384
LOUD = 10.0
"""Times the usual initial values, so that every layer has a say in the logits."""


def values(seed: int = 3) -> dict[str, np.ndarray]:
    draws = np.random.default_rng(seed)
    found = llmc_model.initial(CONFIG, seed)
    return {n: (LOUD * v + draws.normal(0, 0.1, v.shape)).astype(np.float32) for n, v in found.items()}


def plain(tensors: dict[str, np.ndarray], tokens: np.ndarray) -> torch.Tensor:
    model = GPT2(CONFIG)
    model.load_state_dict({name: torch.from_numpy(value) for name, value in tensors.items()})
    with torch.no_grad():
        return model(torch.from_numpy(tokens))


def tokens() -> np.ndarray:
    return np.random.default_rng(0).integers(0, CONFIG.vocab, (3, 17))


def test_the_reader_computes_what_pytorch_does(tmp_path: Path) -> None:
    write_llmc_model(tmp_path / "m.bin", CONFIG, values())
    wanted = plain(values(), tokens())
    found = Model(tmp_path / "m.bin").logits(tokens())
    assert float(wanted.abs().max()) > 1
    assert llmc_check.same(found, wanted.numpy()) < 1e-3
    targets = np.roll(tokens(), -1, axis=1)
    loss = torch.nn.functional.cross_entropy(wanted.reshape(-1, CONFIG.vocab), torch.from_numpy(targets).reshape(-1))
    assert mean_loss(found, targets) == pytest.approx(float(loss), rel=1e-5)


@pytest.mark.parametrize("name", ["h.0.attn.c_attn.weight", "h.1.mlp.c_proj.bias", "wpe.weight", "ln_f.weight"])
def test_one_other_tensor_is_noticed(name: str, tmp_path: Path) -> None:
    tensors = values()
    tensors[name] = tensors[name][::-1].copy()
    write_llmc_model(tmp_path / "m.bin", CONFIG, tensors)
    with pytest.raises(VerificationFailed, match="differ by"):
        llmc_check.same(Model(tmp_path / "m.bin").logits(tokens()), plain(values(), tokens()).numpy())


def test_not_a_number_is_not_the_same() -> None:
    with pytest.raises(VerificationFailed):
        llmc_check.same(np.array([np.nan]), np.array([0.0]))


@pytest.mark.parametrize(
    ("spoil", "why"),
    [
        (lambda data: data[:-4], "ends within lnfb"),
        (lambda data: data + bytes(4), "goes on after"),
        (lambda data: bytes(4) + data[4:], "is no llm.c model file"),
        (lambda data: b"", "is no llm.c model file"),
    ],
)
def test_another_file_is_refused(spoil: object, why: str, tmp_path: Path) -> None:
    write_llmc_model(tmp_path / "m.bin", CONFIG, values())
    assert callable(spoil)
    (tmp_path / "m.bin").write_bytes(spoil((tmp_path / "m.bin").read_bytes()))
    with pytest.raises(InvalidData, match=why):
        Model(tmp_path / "m.bin")


def test_the_demos_model_is_drawn_by_its_seed(tmp_path: Path) -> None:
    sizes = {"layers": 1, "heads": 2, "width": 16, "context": 8}
    for name, seed in (("one", 1), ("again", 1), ("two", 2)):
        llmc_model.main(tmp_path / name, **sizes, seed=seed)
    one, again, two = ((tmp_path / name).read_bytes() for name in ("one", "again", "two"))
    assert one == again != two
    config, tensors = read_llmc_model(tmp_path / "one")
    assert (config.vocab, config.layers) == (256, 1)
    assert tensors["h.0.ln_1.weight"].tolist() == [1.0] * 16
