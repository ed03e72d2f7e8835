"""Reads an llm.c model file and computes GPT-2 as llm.c does, in NumPy. Shares no code with what the project itself reads and trains with.

Source: llm.c, `train_gpt2.c`: `gpt2_build_from_checkpoint`, `fill_in_parameter_sizes`, `gpt2_forward` and the layers that it calls.
"""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from shared.errors import InvalidData

Floats = NDArray[np.floating[Any]]
MAGIC, VERSION, HEADER_BYTES = 20240326, 3, 1024
EPSILON = 1e-5


class Model:
    """An llm.c model file in memory: its sizes, and its sixteen tensors under llm.c's names.

    Raises:
        InvalidData: not an llm.c float32 model file, or not as long as its header says.
    """

    def __init__(self, path: Path) -> None:
        data = path.read_bytes()
        header = np.frombuffer(data[:HEADER_BYTES].ljust(HEADER_BYTES, b"\0"), "<i4")
        if header[0] != MAGIC or header[1] != VERSION:
            raise InvalidData(f"{path} is no llm.c model file of version {VERSION}", code="llmc-malformed")
        self.max_t, self.vocab, self.layers, self.heads, self.width, self.padded = (int(size) for size in header[2:8])
        self.tensors: dict[str, Floats] = {}
        at = HEADER_BYTES
        for name, shape in self._sizes().items():
            length = 4 * math.prod(shape)
            if at + length > len(data):
                raise InvalidData(f"{path} ends within {name}", code="llmc-malformed")
            self.tensors[name] = np.frombuffer(data, "<f4", length // 4, at).reshape(shape)
            at += length
        if at != len(data):
            raise InvalidData(f"{path} goes on after its last tensor", code="llmc-malformed")

    def _sizes(self) -> dict[str, tuple[int, ...]]:
        n, c = self.layers, self.width
        return {
            "wte": (self.padded, c), "wpe": (self.max_t, c), "ln1w": (n, c), "ln1b": (n, c), "qkvw": (n, 3 * c, c),
            "qkvb": (n, 3 * c), "attprojw": (n, c, c), "attprojb": (n, c), "ln2w": (n, c), "ln2b": (n, c),
            "fcw": (n, 4 * c, c), "fcb": (n, 4 * c), "fcprojw": (n, c, 4 * c), "fcprojb": (n, c), "lnfw": (c,), "lnfb": (c,),
        }  # fmt: skip

    def logits(self, tokens: NDArray[Any]) -> Floats:
        """Token ids (B, T) -> logits (B, T, V) without the padding of the vocabulary."""
        p = self.tensors
        x = p["wte"][tokens] + p["wpe"][: tokens.shape[1]]
        for i in range(self.layers):
            qkv = _layernorm(x, p["ln1w"][i], p["ln1b"][i]) @ p["qkvw"][i].T + p["qkvb"][i]
            x = x + self._attention(qkv) @ p["attprojw"][i].T + p["attprojb"][i]
            h = _layernorm(x, p["ln2w"][i], p["ln2b"][i]) @ p["fcw"][i].T + p["fcb"][i]
            x = x + _gelu(h) @ p["fcprojw"][i].T + p["fcprojb"][i]
        return np.asarray((_layernorm(x, p["lnfw"], p["lnfb"]) @ p["wte"].T)[..., : self.vocab])

    def _attention(self, qkv: Floats) -> Floats:
        batch, length, _ = qkv.shape
        size = self.width // self.heads
        # llm.c keeps queries, keys and values one after another in each position, and the heads within each of them.
        q, k, v = np.moveaxis(qkv.reshape(batch, length, 3, self.heads, size), (2, 3), (0, 2))
        scores = q @ np.swapaxes(k, -1, -2) / math.sqrt(size)
        scores = np.where(np.tril(np.ones((length, length), bool)), scores, -np.inf)
        weights = np.exp(scores - scores.max(-1, keepdims=True))
        mixed = weights / weights.sum(-1, keepdims=True) @ v
        return np.asarray(np.swapaxes(mixed, 1, 2).reshape(batch, length, self.width))


def mean_loss(logits: Floats, targets: NDArray[Any]) -> float:
    """Cross-entropy in nats per token."""
    top = logits.max(-1, keepdims=True)
    total = np.log(np.exp(logits - top).sum(-1)) + top[..., 0]
    return float((total - np.take_along_axis(logits, targets[..., None], -1)[..., 0]).mean(dtype=np.float64))


def _layernorm(x: Floats, w: Floats, b: Floats) -> Floats:
    mean = x.mean(-1, keepdims=True)
    return np.asarray((x - mean) / np.sqrt(((x - mean) ** 2).mean(-1, keepdims=True) + EPSILON) * w + b)


def _gelu(x: Floats) -> Floats:
    return np.asarray(0.5 * x * (1.0 + np.tanh(math.sqrt(2.0 / math.pi) * (x + 0.044715 * x**3))))
