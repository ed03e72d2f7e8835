"""A program of next to no work over records of one long field, for `gput bench transfer`. Imported by the program builder alone."""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor, nn

from gpu_agent.workload.source import ProgramSource
from shared.claims.records import RecordField, RecordSchema


class Scale(nn.Module):
    """One weight for each record's mean."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(1))

    def forward(self, values: Tensor) -> Tensor:
        """values: (B, n). Returns: (B,)."""
        return values.mean(dim=1) * self.weight


def losses(model: nn.Module, batch: Mapping[str, Tensor]) -> Tensor:
    """One loss a record, (B,)."""
    found: Tensor = model(batch["values"])
    return found.square()


def source(length: int = 4096) -> ProgramSource:
    """Record field `values` float32 (length,)."""
    field = RecordField(name="values", dtype="float32", shape=(length,), min=0.0, max=1.0)
    return ProgramSource("long-records", Scale(), losses, RecordSchema(fields=(field,)))
