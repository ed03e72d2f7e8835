"""A bare device that trains one holder's dataset to a released model, with privacy or without; what models and losses are read with.

Knows no attack.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from gpu_agent.workload.builder import build
from gpu_agent.workload.source import ProgramSource
from shared.claims.layout import plan_memory
from shared.claims.privacy import Privacy
from shared.claims.training import TrainingOptions
from shared.claims.visit import CursorRange
from shared.names import RegionKind, TravelMode
from shared.wire import gpu, gpu_answers
from tests.adversary.visitor import Visitors
from tests.gpu import gpu_world
from tests.gpu.gpu_world import CLASSES, FEATURES, RECORD_BYTES, World

Tensors = dict[str, np.ndarray[Any, Any]]
KIND = np.dtype([("features", "<f4", (FEATURES,)), ("label", "<i8")])


@dataclass(frozen=True)
class Trained:
    """What a session's owner has in the end: the model, and what was told meanwhile."""

    model: Tensors
    told: gpu_answers.WorkState


def strangers(count: int, seed: int) -> np.ndarray[Any, Any]:
    """Records whose labels mean nothing: what a model knows of them it has learned by heart."""
    draw = np.random.default_rng(seed)
    rows = np.zeros(count, KIND)
    rows["features"] = draw.standard_normal((count, FEATURES), dtype=np.float32)
    rows["label"] = draw.integers(0, CLASSES, count)
    return rows


def train(
    device: World, data: bytes, options: TrainingOptions, *, passes: int = 1, privacy: Privacy | None = None, **changes: Any
) -> Trained:  # fmt: skip
    """A session of one visit over `passes` passes of `data`, with a fresh secret; the released model and what was told."""
    records = len(data) // RECORD_BYTES
    count = passes * records
    visitors = Visitors(device, TravelMode.SCOPED)
    size = max(4096, count * RECORD_BYTES)
    visitors.set_up(options=options, privacy=privacy, buffers=1, buffer_bytes=size, total_steps=10**6, **changes)
    holder = device.install(records, 0, data, cursor=CursorRange(start=0, count=count), chunk_bytes=1 << 20)
    holder.send(data * passes)
    device.open_epoch(holder.grant.epoch)
    told = device.train(holder, steps=count // options.batch_size)
    assert told.state == "done", told.detail
    device.run(gpu.Commit(work="w1"), gpu.Scrub(region=holder.grant.region), gpu.CloseVisit(visit=holder.grant.visit))
    return Trained(released(device, options), told)


def released(device: World, options: TrainingOptions) -> Tensors:
    """The committed model as it is exported."""
    place = device.region(RegionKind.MODEL)
    plan = plan_memory(gpu_world.manifest(), options).model
    device.run(gpu.Export(offset=0, length=min(place.length, plan.length)))
    data = b"".join(device.bulk)
    return {
        t.spec.name: np.frombuffer(data, "<f4", t.size_bytes // 4, t.offset).reshape(t.spec.shape) for t in plan.tensors
    }  # fmt: skip


def logits(model: Tensors, features: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """The classifier's forward pass, written once more in NumPy; float64."""
    x = features.astype(np.float64)
    for name in sorted({n.rsplit(".", 1)[0] for n in model if n.startswith("layers.")}):
        x = np.maximum(x @ model[f"{name}.weight"].T.astype(np.float64) + model[f"{name}.bias"], 0)
    found: np.ndarray[Any, Any] = x @ model["head.weight"].T.astype(np.float64) + model["head.bias"]
    return found


def losses(model: Tensors, rows: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """Cross-entropy of each record."""
    scores = logits(model, rows["features"])
    scores -= scores.max(axis=1, keepdims=True)
    found: np.ndarray[Any, Any] = np.log(np.exp(scores).sum(axis=1)) - scores[np.arange(len(rows)), rows["label"]]
    return found


def auc(inside: Sequence[float] | np.ndarray[Any, Any], outside: Sequence[float] | np.ndarray[Any, Any]) -> float:
    """Probability that one from `inside` scores above one from `outside`; 1/2 is guessing."""
    both = np.concatenate([inside, outside])
    ranks = np.argsort(np.argsort(both)) + 1.0
    n, m = len(inside), len(outside)
    return float((ranks[:n].sum() - n * (n + 1) / 2) / (n * m))


def vector(model: Tensors) -> np.ndarray[Any, Any]:
    """All parameters, end to end, float64."""
    return np.concatenate([model[name].astype(np.float64).ravel() for name in sorted(model)])


def run_as(patch: Any, source: ProgramSource) -> None:
    """Let the device's sessions run this program in place of the usual one. Its records must be as long."""
    from shared.claims.archive import open_archive

    built = build(source)
    assert built[1] is not None
    made = open_archive(built[0]).manifest
    assert made.records.record_bytes == RECORD_BYTES
    patch.setattr(gpu_world, "program", lambda: built)
    patch.setattr(gpu_world, "manifest", lambda: made)
