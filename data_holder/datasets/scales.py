"""How large a dataset's values are, in decades, and which classes it has: the little that a profile may say of records. Signs nothing.

Everything rests on ranks over many values, so that no single record decides anything: a median's decade is that of some value within one
rank of it, whatever one record says. Looked at are at most `MOST_LOOKED_AT` records, evenly spaced.
"""

from __future__ import annotations

from collections.abc import Iterator
from math import prod

import numpy as np
from numpy.typing import NDArray

from data_holder.datasets.cells import record_dtype
from data_holder.datasets.dataset import Dataset
from data_holder.datasets.values import Array
from shared.claims.profile import (
    LEAST_DECADE,
    LEAST_OF_A_CLASS,
    LEAST_RECORDS,
    MOST_COLUMNS,
    MOST_DECADE,
    Scale,
)
from shared.claims.records import RecordField

MOST_LOOKED_AT = 1 << 16
MOST_BYTES = 256 * 1024 * 1024  # of records looked at, unless they are fewer than a statement needs
LEAST_SPAN = 100
"""A whole-number field with fewer possible values cannot be a hundred times as large elsewhere."""
_EDGES = np.array([float(f"1e{n}") for n in range(LEAST_DECADE + 1, MOST_DECADE + 1)])
_DECADES = MOST_DECADE - LEAST_DECADE + 1
Counts = NDArray[np.int64]


def decades(values: Array) -> Counts:
    """The decade of each value that is not zero: n for a magnitude in [10^n, 10^(n+1)), the least and greatest one for all beyond.

    By comparison with the powers themselves, so that every machine finds the same.
    """
    sizes = np.abs(values[values != 0].astype(np.float64))
    found: Counts = np.searchsorted(_EDGES, sizes, side="right").astype(np.int64) + LEAST_DECADE
    return found


def scale_of(counts: Counts) -> Scale | None:
    """What may be said of a column with so many values in each decade; None where they are too few."""
    total = int(counts.sum())
    if total < LEAST_RECORDS:
        return None
    low, middle, high = (_at_rank(counts, -(-total * percent // 100)) for percent in (10, 50, 90))
    return Scale(size=middle, spread=high - low)


def _at_rank(counts: Counts, rank: int) -> int:
    """The decade of the `rank`-th least value, from 1 on (nearest rank)."""
    return int(np.searchsorted(np.cumsum(counts), rank)) + LEAST_DECADE


def sizeable(field: RecordField) -> bool:
    """Whether a field's values can differ as units do: numbers with a fraction, and whole ones of enough possible values. Of fewer, such as
    a flag or a label, a decade would tell how common they are."""
    if field.dtype.startswith("float"):
        return True
    limits = np.iinfo(field.dtype)
    low = limits.min if field.min is None else max(limits.min, field.min)
    high = limits.max if field.max is None else min(limits.max, field.max)
    return field.dtype != "uint8" and high - low >= LEAST_SPAN


class Look:
    """One pass over a dataset's records. `scales`: by field, as a profile has them; `present`: by field, for each of so many classes."""

    def __init__(self, dataset: Dataset, classes: dict[str, int]) -> None:
        """Raises: UnfitData: a file was changed since the dataset was opened."""
        self._sizes = {
            field.name: np.zeros((_columns(field), _DECADES), np.int64)
            for field in dataset.schema.fields
            if field.name not in classes and sizeable(field)
        }
        scalars = {field.name for field in dataset.schema.fields if not field.shape}
        self._codes = {name: np.zeros(many, np.int64) for name, many in classes.items() if name in scalars}
        for block in _blocks(dataset):
            self._take(block)

    @property
    def scales(self) -> dict[str, tuple[Scale | None, ...]]:
        return {name: tuple(scale_of(column) for column in counts) for name, counts in self._sizes.items()}

    @property
    def present(self) -> dict[str, tuple[bool, ...]]:
        return {name: tuple((counts >= LEAST_OF_A_CLASS).tolist()) for name, counts in self._codes.items()}

    def _take(self, block: Array) -> None:
        for name, counts in self._sizes.items():
            values = block[name].reshape(len(block), -1)
            for column, counted in enumerate(counts):
                taken = values if len(counts) == 1 else values[:, column]
                counted += np.bincount(decades(taken) - LEAST_DECADE, minlength=_DECADES)
        for name, codes in self._codes.items():
            codes += np.bincount(block[name].astype(np.int64), minlength=len(codes))[: len(codes)]


def _columns(field: RecordField) -> int:
    elements = prod(field.shape)
    return elements if elements <= MOST_COLUMNS else 1


def _blocks(dataset: Dataset) -> Iterator[Array]:
    """The records looked at, as arrays of `record_dtype`."""
    most = max(LEAST_RECORDS, min(MOST_LOOKED_AT, MOST_BYTES // dataset.record_bytes))
    many, dtype = min(dataset.records, most), record_dtype(dataset.schema)
    indexes = np.arange(many, dtype=np.int64) * dataset.records // many
    for at in range(0, many, dataset.block_records):
        yield np.frombuffer(dataset.read_records(indexes[at : at + dataset.block_records]), dtype)
