"""llm.c's train_gpt2.c written out in PyTorch tensors: its file, its forward pass, its update. Shares no code with the product."""

from __future__ import annotations

import math
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor


class ReferenceGPT2:
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


def reference_losses(model: ReferenceGPT2, windows: Iterable[NDArray[Any]], batch: int, length: int) -> list[float]:
    """Train one step on each window of B*T + 1 tokens; the loss of each step before its update."""
    losses = []
    for step, window in enumerate(windows):
        tokens = torch.from_numpy(window.astype(np.int64))
        loss = model.loss(tokens[:-1].view(batch, length), tokens[1:].view(batch, length))
        loss.backward()
        model.update(step + 1)
        losses.append(loss.item())
    return losses
