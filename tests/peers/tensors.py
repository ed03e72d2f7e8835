"""What needs PyTorch, in a process of its own: the weights that all start from, and the one judgement of every finished model.

python -m tests.peers.tensors start ARCHIVE FOLDER      writes FOLDER/start.pt
python -m tests.peers.tensors loss FOLDER MODEL         prints the held-out loss of each holder's records, JSON
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors.torch import load_file

from gpu_agent.workload.programs.gpt2 import GPT2Config, held_out_loss
from gpu_agent.workload.tensors import initial_tensors
from shared.claims.archive import open_archive


def start(archive: Path, folder: Path) -> None:
    """The weights that a measured program starts from, for those who cannot read it."""
    tensors = initial_tensors(open_archive(archive.read_bytes()).manifest, None)
    torch.save({name: tensor.clone() for name, tensor in tensors.items()}, folder / "start.pt")


def state_of(path: Path) -> dict[str, Any]:
    """Weights by name, from either kind of file; a framework's file may hold them in `model`, beside its own notes."""
    if path.suffix == ".safetensors":
        return dict(load_file(path))
    found: dict[str, Any] = torch.load(path, weights_only=True)
    inner = found.get("model", found)
    return {name: torch.as_tensor(value) for name, value in inner.items()}


def losses(folder: Path, model: Path) -> list[float]:
    """Mean loss in nats per byte over each holder's held-out records."""
    task = json.loads((folder / "task.json").read_text())
    config = GPT2Config(**{name: task[name] for name in ("layers", "heads", "width", "context")}, vocab=256)
    state = state_of(model)
    return [held_out_loss(state, config, _tokens(folder / f"held-out-{one}.npz")) for one in range(task["holders"])]


def _tokens(path: Path) -> torch.Tensor:
    with np.load(path) as file:
        return torch.from_numpy(file["tokens"].astype(np.int64))


if __name__ == "__main__":
    kind, first, second = sys.argv[1], Path(sys.argv[2]), Path(sys.argv[3])
    if kind == "start":
        start(first, second)
    else:
        print(json.dumps(losses(first, second)))
