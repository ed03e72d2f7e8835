"""Judges a record demo: the exported model beside each holder alone and beside pooled training, all in plain PyTorch, as JSON on stdout.

A process of its own, because the launcher must not import PyTorch. Usage: python -m gput.local.demos.compare FOLDER
"""

from __future__ import annotations

import importlib
import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors.torch import load_file
from torch import Tensor, nn

from gpu_agent.workload.source import Loss, ProgramSource
from gpu_agent.workload.tensors import initial_tensors
from gput.local.demos.catalogue import kept
from gput.local.demos.plan import HELD_OUT
from gput.local.demos.records import POOLED, TOGETHER, Records
from shared.claims.archive import open_archive
from shared.claims.program import ProgramManifest
from shared.claims.training import AdamW, TrainingOptions
from shared.errors import BadRequest

Batch = dict[str, Tensor]


def main(folder: Path) -> dict[str, object]:
    """A row for each holder alone, for the model of the session, and for the same records pooled."""
    plan = kept(folder)
    if not isinstance(plan, Records):
        raise BadRequest(f"{folder} holds no run of a record demo", code="no-demo")
    torch.set_num_threads(1)
    parts = {name: read(file) for name, file in plan.places(folder / "data").items()}
    held = parts.pop(HELD_OUT)
    manifest = open_archive((folder / plan.program).read_bytes()).manifest
    steps = plan.rounds * (plan.steps * len(plan.holders) if plan.accumulate is None else 1)
    pooled = {field: torch.cat([part[field] for part in parts.values()]) for field in held}
    rows: list[dict[str, Any]] = []
    for name, data in {**{f"{name} alone": part for name, part in parts.items()}, POOLED: pooled}.items():
        source = program(plan)
        train(source, manifest, data, plan.training(), steps)
        rows.append(
            {"trained on": name, "records": size(data), "steps": steps, **scores(source.model, source.loss, held)}
        )
    source = program(plan)
    source.model.load_state_dict(load_file(folder / "model.safetensors"))
    together = {"trained on": TOGETHER, "records": size(pooled), "steps": steps}
    rows.insert(-1, together | scores(source.model, source.loss, held))
    return {"loss": rows[-2]["loss"], "torch": torch.__version__, "held_out": size(held), "rows": rows}


def program(plan: Records) -> ProgramSource:
    """The demo's program as its author wrote it, with a model of its own."""
    module, _, function = plan.target.partition(":")
    made: ProgramSource = getattr(importlib.import_module(module), function)()
    return made


def read(file: Path) -> Batch:
    """A part of the records, by field."""
    with np.load(file) as arrays:
        return {name: torch.from_numpy(arrays[name]) for name in arrays.files}


def size(data: Batch) -> int:
    """How many records they are."""
    return len(next(iter(data.values())))


def train(source: ProgramSource, manifest: ProgramManifest, data: Batch, options: TrainingOptions, steps: int) -> None:
    """Plain PyTorch: the same initial weights, optimiser and batch size, `steps` steps on shuffled passes over `data`.

    Raises:
        BadRequest: the options ask for what this loop does not do.
    """
    asked, model = options.optimizer, source.model
    if (
        not isinstance(asked, AdamW)
        or asked.weight_decay
        or options.grad_clip_norm
        or options.schedule.kind != "constant"
    ):
        raise BadRequest("the plain loop knows AdamW at a constant rate only", code="demo-option")
    model.load_state_dict(initial_tensors(manifest, None))
    optimiser = torch.optim.AdamW(model.parameters(), lr=asked.lr, betas=asked.betas, eps=asked.eps, weight_decay=0.0)
    draws = batches(size(data), options.batch_size, np.random.default_rng(options.seed))
    for _ in range(steps):
        rows = next(draws)
        optimiser.zero_grad()
        losses = source.loss(model, {name: values[rows] for name, values in data.items()})
        torch.autograd.backward(losses.mean())
        optimiser.step()


def batches(count: int, batch: int, draws: np.random.Generator) -> Iterator[Tensor]:
    """Row numbers, `batch` at a time, of one shuffled pass after another."""
    rows: np.ndarray[Any, Any] = np.empty(0, np.int64)
    while True:
        while len(rows) < batch:
            rows = np.concatenate([rows, draws.permutation(count)])
        yield torch.from_numpy(rows[:batch])
        rows = rows[batch:]


def scores(model: nn.Module, loss: Loss, held: Batch) -> dict[str, Any]:
    """How a model does on the held-out records; the last field of a record is its label."""
    model.eval()
    with torch.no_grad():
        mean = float(loss(model, held).double().mean())
        logits = model(held)
    label = list(held.values())[-1].numpy()
    if logits.dim() == 1:
        # Takes longer to load than all else here, and one of the demos needs it.
        from sklearn.metrics import roc_auc_score

        found = logits.numpy() > 0
        hits = {"accuracy": float((found == (label == 1)).mean()), "found": float(found[label == 1].mean())}
        return {"AUC": float(roc_auc_score(label, logits.numpy())), **hits, "loss": mean}
    hits = logits.argmax(dim=1).numpy() == label
    each = [float(hits[label == kind].mean()) for kind in range(logits.shape[1])]
    return {"accuracy": float(hits.mean()), "loss": mean, "per class": each}


if __name__ == "__main__":
    print(json.dumps(main(Path(sys.argv[1]))))
