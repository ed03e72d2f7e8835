"""llm.c's model file, and llm.c's own training loop written out, against a program trained over visits."""

from __future__ import annotations

import functools
import math
from pathlib import Path

import numpy as np
import pytest
import safetensors.torch
import torch
from torch import Tensor
from workload_helpers import Built, place

from gpu_agent.workload.builder import build
from gpu_agent.workload.llmc import read_llmc_model, write_llmc_model
from gpu_agent.workload.loader import load_program
from gpu_agent.workload.programs.gpt2 import GPT2Config, held_out_loss
from gpu_agent.workload.tensors import initial_tensors, read_weights
from shared.claims.training import AdamW, TrainingOptions
from shared.errors import InvalidData

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
    reference = _ReferenceGPT2(model_file)
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


def test_writing_needs_exactly_the_parameters(tmp_path: Path) -> None:
    tensors = _initial()
    with pytest.raises(InvalidData, match=r"ln_f\.bias"):
        write_llmc_model(tmp_path / "x", CONFIG, {k: v for k, v in tensors.items() if k != "ln_f.bias"})
    with pytest.raises(InvalidData, match=r"wte\.weight"):
        write_llmc_model(tmp_path / "x", CONFIG, tensors | {"wte.weight": tensors["wte.weight"][:10]})


class _ReferenceGPT2:
    """llm.c's train_gpt2.c in a page: its file, its forward formulas, its `gpt2_update`. Shares no code with the product."""

    def __init__(self, path: Path) -> None:
        data = path.read_bytes()
        _, _, max_t, self.V, self.L, self.NH, c, padded = np.frombuffer(data, "<i4", 8).tolist()
        n = self.L
        shapes = {
            "wte": (padded, c), "wpe": (max_t, c), "ln1w": (n, c), "ln1b": (n, c), "qkvw": (n, 3 * c, c),
            "qkvb": (n, 3 * c), "attprojw": (n, c, c), "attprojb": (n, c), "ln2w": (n, c), "ln2b": (n, c),
            "fcw": (n, 4 * c, c), "fcb": (n, 4 * c), "fcprojw": (n, c, 4 * c), "fcprojb": (n, c),
            "lnfw": (c,), "lnfb": (c,),
        }  # fmt: skip
        self.params: dict[str, Tensor] = {}
        offset = 1024
        for name, shape in shapes.items():
            values = np.frombuffer(data, "<f4", math.prod(shape), offset).reshape(shape)
            self.params[name] = torch.from_numpy(values.copy()).requires_grad_(True)
            offset += values.nbytes
        self.m = {name: torch.zeros_like(p) for name, p in self.params.items()}
        self.v = {name: torch.zeros_like(p) for name, p in self.params.items()}

    @staticmethod
    def _layernorm(x: Tensor, w: Tensor, b: Tensor) -> Tensor:
        m = x.sum(-1, keepdim=True) / x.shape[-1]
        rstd = 1.0 / torch.sqrt(((x - m) ** 2).sum(-1, keepdim=True) / x.shape[-1] + 1e-5)
        return (x - m) * rstd * w + b

    @staticmethod
    def _gelu(x: Tensor) -> Tensor:
        return 0.5 * x * (1.0 + torch.tanh(math.sqrt(2.0 / math.pi) * (x + 0.044715 * x * x * x)))

    def _attention(self, qkv: Tensor) -> Tensor:
        b, t, c3 = qkv.shape
        hs = c3 // 3 // self.NH
        q, k, v = (
            x.reshape(b, t, self.NH, hs).permute(0, 2, 1, 3)
            for x in (qkv[..., : c3 // 3], qkv[..., c3 // 3 : -(c3 // 3)], qkv[..., -(c3 // 3) :])
        )
        scores = (q @ k.transpose(-1, -2)) / math.sqrt(hs)
        scores = scores.masked_fill(torch.ones(t, t).triu(1).bool(), float("-inf"))
        return (torch.softmax(scores, -1) @ v).permute(0, 2, 1, 3).reshape(b, t, c3 // 3)

    def loss(self, inputs: Tensor, targets: Tensor) -> Tensor:
        p = self.params
        x = p["wte"][inputs] + p["wpe"][: inputs.shape[1]]
        for i in range(self.L):
            qkv = self._layernorm(x, p["ln1w"][i], p["ln1b"][i]) @ p["qkvw"][i].T + p["qkvb"][i]
            x = x + self._attention(qkv) @ p["attprojw"][i].T + p["attprojb"][i]
            h = self._layernorm(x, p["ln2w"][i], p["ln2b"][i]) @ p["fcw"][i].T + p["fcb"][i]
            x = x + self._gelu(h) @ p["fcprojw"][i].T + p["fcprojb"][i]
        logits = (self._layernorm(x, p["lnfw"], p["lnfb"]) @ p["wte"].T)[..., : self.V]
        probabilities = torch.softmax(logits, -1)
        return -torch.log(probabilities.gather(-1, targets[..., None])).mean()

    def update(self, t: int, lr: float = 1e-4, beta1: float = 0.9, beta2: float = 0.999, eps: float = 1e-8) -> None:
        with torch.no_grad():
            for name, p in self.params.items():
                assert p.grad is not None
                self.m[name] = beta1 * self.m[name] + (1 - beta1) * p.grad
                self.v[name] = beta2 * self.v[name] + (1 - beta2) * p.grad * p.grad
                m_hat = self.m[name] / (1 - beta1**t)
                v_hat = self.v[name] / (1 - beta2**t)
                p -= lr * m_hat / (torch.sqrt(v_hat) + eps)
                p.grad = None


def test_three_holders_reproduce_llmcs_losses(model_file: Path) -> None:
    """Sequential batches, B=4, T=64, AdamW lr 1e-4, no decay: 30 steps as three holders' visits of two steps each."""
    generator = np.random.default_rng(3)
    tokens = (generator.random(STEPS * B * T + 1) ** 4 * CONFIG.vocab).astype(np.uint16)

    reference, expected = _ReferenceGPT2(model_file), []
    for step in range(STEPS):  # llm.c's dataloader: B*T + 1 tokens, then B*T further
        window = torch.from_numpy(tokens[step * B * T : (step + 1) * B * T + 1].astype(np.int64))
        loss = reference.loss(window[:-1].view(B, T), window[1:].view(B, T))
        loss.backward()
        reference.update(step + 1)
        expected.append(loss.item())

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
