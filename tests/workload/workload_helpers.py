"""A trainer over plain byte arrays, placed as the GPU places it."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from gpu_agent.workload.loader import LoadedProgram, load_program
from gpu_agent.workload.private import Noise
from gpu_agent.workload.tensors import fill, initial_tensors, tensors_over
from gpu_agent.workload.training import Trainer
from shared.canonical import cbor_bytes, cbor_value, json_bytes, sha384
from shared.claims.layout import RegionPlan, plan_memory
from shared.claims.training import TrainingOptions

Built = tuple[bytes, bytes | None]


@dataclass
class Placed:
    """A trainer and the three regions that its tensors lie over."""

    trainer: Trainer
    params: dict[str, Tensor]
    state: dict[str, Tensor]
    model: bytearray
    gradients: bytearray
    optimiser: bytearray


def place(
    built: Built, options: TrainingOptions, total_steps: int = 100, resume: Placed | None = None, noise: Noise | None = None,
    accumulate: bool = False,
) -> Placed:  # fmt: skip
    """Lay a program out over fresh bytes (or copies of an earlier placement's) and make its trainer."""
    program: LoadedProgram = load_program(built[0])
    plan = plan_memory(program.manifest, options, accumulate)

    def region(part: RegionPlan, earlier: bytearray | None) -> bytearray:
        return bytearray(earlier) if earlier is not None else bytearray(max(part.length, 1))

    model = region(plan.model, resume.model if resume else None)
    gradients = region(plan.gradients, None)
    optimiser = region(plan.optimiser, resume.optimiser if resume else None)
    tensors = tensors_over(model, plan.model)
    if resume is None:
        fill(tensors, initial_tensors(program.manifest, built[1]))
    params = {spec.name: tensors[spec.name] for spec in program.manifest.parameters}
    state = {spec.name: tensors[spec.name] for spec in program.manifest.state}
    grads, moments = tensors_over(gradients, plan.gradients), tensors_over(optimiser, plan.optimiser)
    trainer = Trainer(program, params, grads, moments, state, options, total_steps, noise=noise, accumulate=accumulate)
    return Placed(trainer, params, state, model, gradients, optimiser)


def bytes_tensor(tensor: Tensor) -> Tensor:
    """A tensor's bytes as a dataset buffer."""
    return tensor.contiguous().view(torch.uint8).flatten().clone()


Change = Callable[[dict[str, Any], dict[str, Any], dict[str, Any]], None]


def repack(data: bytes, change: Change) -> bytes:
    """Apply `change(manifest, train, eval)` and make all digests right again, so that only that fault is left."""
    top = cbor_value(data)
    manifest = json.loads(top["manifest"])
    train, evaluation = json.loads(top["graphs"]["train"]), json.loads(top["graphs"]["eval"])
    change(manifest, train, evaluation)
    graphs = {"train": json_bytes(train), "eval": json_bytes(evaluation)}
    for kind, graph in graphs.items():
        if kind in manifest.get("graphs", {}):
            manifest["graphs"][kind] = sha384(graph).hex()
    return cbor_bytes({"format": top["format"], "manifest": json_bytes(manifest), "graphs": graphs})
