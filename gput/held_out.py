"""Held-out records as a file: what a session's owner uploads as its validation dataset. Knows records and no service."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from shared.claims.program import ProgramManifest
from shared.claims.visit import CursorRange

if TYPE_CHECKING:
    from data_holder.datasets import DatasetOptions

SEED = 7


def pack(
    path: Path, program: ProgramManifest, count: int, *, seed: int = SEED, options: DatasetOptions | None = None
) -> tuple[bytes, int]:
    """Records drawn from a dataset without repetition, end to end in the program's form; and how many they are.

    Args:
        count: how many at most; all there are if there are fewer.

    Raises:
        InvalidData: the data does not fit the program.
    """
    from data_holder.datasets import DatasetOptions, open_dataset

    with open_dataset(path, program.records, program.tokenizer, options=options or DatasetOptions()) as dataset:
        drawn = min(count, dataset.records)
        out = bytearray(drawn * dataset.record_bytes)
        dataset.read_into(CursorRange(start=0, count=drawn, order="shuffled", seed=seed), memoryview(out))
    return bytes(out), drawn
