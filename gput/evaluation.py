"""A released model's loss over records of one's own, on this machine; imports PyTorch when called. Knows no service."""

from __future__ import annotations

import math
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from shared.claims.visit import CursorRange

if TYPE_CHECKING:
    from data_holder.datasets import DatasetOptions
    from gpu_agent.workload.loader import LoadedProgram

AT_ONCE_BYTES = 64 * 1024 * 1024
"""Records in memory at a time, at most (one, if a record is larger)."""


@dataclass(frozen=True)
class Evaluation:
    """Mean loss of a model over `records` records, in the program's unit; `perplexity` is e to that, for losses in nats."""

    loss: float
    records: int

    @property
    def perplexity(self) -> float | None:
        """None where it is beyond what a float can say."""
        return math.exp(self.loss) if self.loss < 700 else None


def evaluate(
    path: Path, archive: bytes, weights: bytes, *, options: DatasetOptions, batch: int, limit: int | None = None
) -> Evaluation:
    """Run the program's eval graph, with the weights, over the dataset at `path`, in its order.

    Args:
        archive: the program as it was trained. weights: the exported model, safetensors.
        batch: records at a time; they decide nothing but speed, where the program treats records apart.
        limit: only so many records, from the beginning.

    Raises:
        InvalidData: the data does not fit the program. InvalidProgram: the weights do not, or an operator failed.
    """
    from data_holder.datasets import open_dataset
    from gpu_agent.workload.loader import load_program

    program = load_program(archive)
    schema = program.manifest.records
    with open_dataset(path, schema, program.manifest.tokenizer, options=options) as dataset:
        records = min(dataset.records, limit or dataset.records)
        at_once = max(1, AT_ONCE_BYTES // dataset.record_bytes)
        total = 0.0
        model = _Model(program, weights, batch)
        for start in range(0, records, at_once):
            count = min(at_once, records - start)
            buffer = bytearray(count * dataset.record_bytes)
            dataset.read_into(CursorRange(start=start, count=count, order="sequential", seed=0), memoryview(buffer))
            total += model.sum(buffer, count)
    return Evaluation(total / records, records)


class _Model:
    def __init__(self, program: LoadedProgram, weights: bytes, batch: int) -> None:
        from gpu_agent.workload.tensors import read_weights

        manifest = program.manifest
        tensors = read_weights(weights, [*manifest.parameters, *manifest.state])
        self._program, self._batch = program, batch
        self._params = {spec.name: tensors[spec.name] for spec in manifest.parameters}
        self._state = {spec.name: tensors[spec.name] for spec in manifest.state}

    def sum(self, buffer: bytearray, count: int) -> float:
        """Of the losses of `count` records."""
        import torch

        from gpu_agent.workload.records import check_records, decode_batch

        schema, held = self._program.manifest.records, torch.frombuffer(buffer, dtype=torch.uint8)
        check_records(held, schema, count)
        total = 0.0
        with torch.no_grad():
            for start in range(0, count, self._batch):
                records = decode_batch(held, schema, start, min(count, start + self._batch))
                total += float(self._program.eval(self._params, self._state, records).double().sum())
        return total
