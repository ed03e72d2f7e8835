"""What a federated client computes, whichever framework calls it: model, records, one round's training. Runs in a peer's own environment.

Knows PyTorch and the task's folder; no framework, and no code of this repository, which is not installed there.
"""

from __future__ import annotations

import json
import os
from pathlib import Path

import numpy as np
import torch
import torch.nn.functional as F  # noqa: N812  # PyTorch's own convention
from torch import nn

FOLDER = Path(os.environ["PEERS_TASK"])
TASK = json.loads((FOLDER / "task.json").read_text())
torch.set_num_threads(1)


class Attention(nn.Module):
    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.c_attn = nn.Linear(width, 3 * width)
        self.c_proj = nn.Linear(width, width)

    def forward(self, x):
        batch, length, width = x.shape
        shape = (batch, length, self.heads, width // self.heads)
        q, k, v = (part.view(shape).transpose(1, 2) for part in self.c_attn(x).split(width, dim=2))
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        return self.c_proj(y.transpose(1, 2).reshape(batch, length, width))


class Perceptron(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.c_fc = nn.Linear(width, 4 * width)
        self.c_proj = nn.Linear(4 * width, width)

    def forward(self, x):
        return self.c_proj(F.gelu(self.c_fc(x), approximate="tanh"))


class Block(nn.Module):
    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.ln_1 = nn.LayerNorm(width)
        self.attn = Attention(width, heads)
        self.ln_2 = nn.LayerNorm(width)
        self.mlp = Perceptron(width)

    def forward(self, x):
        x = x + self.attn(self.ln_1(x))
        return x + self.mlp(self.ln_2(x))


class TinyGPT(nn.Module):
    """The built-in GPT-2 again, name for name; a test holds the two against each other."""

    def __init__(
        self, layers=TASK["layers"], heads=TASK["heads"], width=TASK["width"], context=TASK["context"]
    ) -> None:
        super().__init__()
        self.wte = nn.Embedding(256, width)
        self.wpe = nn.Embedding(context, width)
        self.h = nn.ModuleList(Block(width, heads) for _ in range(layers))
        self.ln_f = nn.LayerNorm(width)

    def forward(self, tokens):
        x = self.wte(tokens) + self.wpe(torch.arange(tokens.shape[1]))
        for block in self.h:
            x = block(x)
        return F.linear(self.ln_f(x), self.wte.weight)


def fresh() -> TinyGPT:
    """The model with the weights that everybody starts from."""
    model = TinyGPT()
    model.load_state_dict(torch.load(FOLDER / "start.pt", weights_only=True))
    return model


def loss_of(model, tokens):
    logits = model(tokens[:, :-1])
    return F.cross_entropy(logits.reshape(-1, 256), tokens[:, 1:].reshape(-1))


def train(model: TinyGPT, holder: int, turn: int) -> None:
    """A holder's round `turn` (from 0): its next records in order, with an optimiser that begins anew, because only weights travel."""
    steps, batch = TASK["steps"], TASK["batch"]
    with np.load(FOLDER / f"holder-{holder}.npz") as file:
        records = torch.from_numpy(file["tokens"].astype(np.int64))
    optimizer = torch.optim.AdamW(model.parameters(), lr=TASK["lr"], weight_decay=0.0)
    model.train()
    for step in range(turn * steps, (turn + 1) * steps):
        loss = loss_of(model, records[step * batch : (step + 1) * batch])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    with open(os.environ["PEERS_PROGRESS"], "a") as progress:
        progress.write(f"{holder} {turn}\n")


def save(state, path: str) -> None:
    """The whole file or none."""
    torch.save({name: torch.as_tensor(value) for name, value in state.items()}, path + ".part")
    os.replace(path + ".part", path)
