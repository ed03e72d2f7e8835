"""Programs made of a user's module over vectors, and the same module in plain PyTorch beside them. Holds no test."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

from gpu_agent.workload.builder import build
from gpu_agent.workload.loader import load_program
from gpu_agent.workload.source import ProgramSource
from gpu_agent.workload.tensors import initial_tensors
from shared.claims.records import RecordField, RecordSchema
from tests.workload.workload_helpers import repack

VECTOR = RecordSchema(fields=(RecordField(name="x", dtype="float32", shape=(4,), min=-9, max=9),))
IDS = RecordSchema(fields=(RecordField(name="ids", dtype="uint16", shape=(2,), min=0, max=9),))
Loss = Callable[[nn.Module, dict[str, Tensor]], Tensor]


def squares(model: nn.Module, batch: dict[str, Tensor]) -> Tensor:
    return model(batch["x"]).square().mean(dim=1)


def source_of(model: nn.Module, loss: Loss = squares, records: RecordSchema = VECTOR) -> ProgramSource:
    return ProgramSource(name="mine", model=model, loss=loss, records=records)


def looked_up(model: nn.Module, batch: dict[str, Tensor]) -> Tensor:
    return model(batch["ids"].to(torch.int64)).square().sum(dim=(1, 2))


def with_sparse_gradients(archive: bytes) -> bytes:
    """As builders made it that took `sparse=True` at its word, of a program that looks up once."""

    def change(_: dict[str, Any], *graphs: dict[str, Any]) -> None:
        for graph in graphs:
            (node,) = [one for one in graph["nodes"] if one["op"] == "aten.embedding.default"]
            node["args"] = [*node["args"][:2], -1, False, True]

    return repack(archive, change)


def same_as_plain(source: ProgramSource, batch: dict[str, Tensor]) -> None:
    """Losses and gradients of the built program equal those of the user's own code."""
    archive, weights = build(source)
    program = load_program(archive)
    tensors = initial_tensors(program.manifest, weights)
    params = {s.name: tensors[s.name].requires_grad_(True) for s in program.manifest.parameters}
    state = {s.name: tensors[s.name] for s in program.manifest.state}
    plain = dict(source.model.named_parameters())
    for training in (True, False):
        source.model.train(training)
        source.model.zero_grad()
        torch.manual_seed(3)
        expected = source.loss(source.model, batch)
        torch.manual_seed(3)
        got = program.train(params, state, batch)[0] if training else program.eval(params, state, batch)
        assert torch.equal(got, expected)
        expected.sum().backward()
        got.sum().backward()
        for name, parameter in params.items():
            assert parameter.grad is not None
            assert torch.equal(parameter.grad, plain[name].grad), name
            parameter.grad = None
