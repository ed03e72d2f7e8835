"""Records out of arrays whose first dimension is the record: one array per field. Knows no file format (see containers)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from data_holder.datasets.dataset import BLOCK_BYTES, Block, Dataset, as_slice
from data_holder.datasets.files import HeldFile
from data_holder.datasets.findings import refusal
from data_holder.datasets.mappings import Mappings
from data_holder.datasets.values import Array, little_endian
from shared.claims.records import RecordField, RecordSchema

PIECE_BYTES = 256 * 1024
"""Short rows at random places are gathered so much at a time: then they are put into their records out of a core's own cache."""
LONG_ROW = 4096


@dataclass(frozen=True)
class NamedArray:
    """An array (n, …) of a file; `file` is its name for people."""

    values: Array
    file: str


class ArrayDataset(Dataset):
    """Record i is element i of every field's array, converted to the field's little-endian dtype where that loses nothing."""

    def __init__(
        self,
        kind: str,
        schema: RecordSchema,
        arrays: Mapping[str, NamedArray],
        held: Sequence[HeldFile],
        maps: Mappings,
    ) -> None:
        self._columns = [(field, _fitting(field, arrays[field.name])) for field in schema.fields]
        counts = {len(array.values) for _, array in self._columns}
        if len(counts) > 1:
            first, other = next((a, b) for a, b in _pairs(self._columns) if len(a.values) != len(b.values))
            reason = f"has {len(other.values)} records where {first.file} has {len(first.values)}"
            raise refusal(
                "data-wrong-shape", reason, other.file, remedy="give every field's array the same first dimension"
            )
        super().__init__(kind, schema, counts.pop(), held)
        self._maps = maps
        self._flat = _end_to_end(self._columns)
        self._lying = None if self._flat is None else self._flat.data

    def _release(self) -> None:
        self._columns.clear()
        self._flat = self._lying = None
        self._maps.close()

    def _rows(self) -> memoryview | None:
        return self._lying

    def _gather(self, indexes: NDArray[np.int64], out: NDArray[np.uint8]) -> None:
        chosen, at = as_slice(indexes), 0
        if self._flat is not None and not isinstance(chosen, slice) and self.record_bytes >= LONG_ROW:
            # In one pass. Every index is in range; a mode that would raise for others makes a copy first.
            self._flat.reshape(-1, self.record_bytes).take(indexes, axis=0, out=out, mode="clip")
            return
        for field, array in self._columns:
            place = out[:, at : at + field.size_bytes]
            if isinstance(chosen, slice):
                _put(array.values[chosen], field, place)
            else:
                step = _together(field.size_bytes, len(chosen))
                for first in range(0, len(chosen), step):
                    _put(_taken(array.values, chosen[first : first + step]), field, place[first : first + step])
            at += field.size_bytes

    def _blocks(self) -> Iterator[Block]:
        for field, array in self._columns:
            step = max(1, BLOCK_BYTES // field.size_bytes)
            for first in range(0, self.records, step):
                yield Block(array.file, field, first, array.values[first : first + step])

    def _settle(self) -> None:
        for file in self._held:
            self._maps.bytes_of(file)
        self._maps.settle()


def _end_to_end(columns: Sequence[tuple[RecordField, NamedArray]]) -> NDArray[np.uint8] | None:
    """The only column's bytes, where they are its records as they stand."""
    (field, array), *others = columns
    same = not others and array.values.dtype == little_endian(field) and array.values.flags.c_contiguous
    return array.values.reshape(-1).view(np.uint8) if same else None


def _together(row_bytes: int, rows: int) -> int:
    """How many rows are gathered at a time."""
    return max(1, PIECE_BYTES // row_bytes) if row_bytes < LONG_ROW else max(1, rows)


def _taken(values: Array, indexes: NDArray[np.int64]) -> Array:
    # `take` is three times as fast over short rows, and would first copy all of an array whose rows do not lie end to end.
    short = values[:1].nbytes < LONG_ROW and values.flags.c_contiguous
    return values.take(indexes, axis=0) if short else values[indexes]


def _put(values: Array, field: RecordField, place: NDArray[np.uint8]) -> None:
    rows = np.ascontiguousarray(values, little_endian(field))
    place[:] = rows.reshape(len(place), -1).view(np.uint8)


def _pairs(columns: Sequence[tuple[RecordField, NamedArray]]) -> Iterator[tuple[NamedArray, NamedArray]]:
    for _, array in columns[1:]:
        yield columns[0][1], array


def _fitting(field: RecordField, array: NamedArray) -> NamedArray:
    """The array, when its shape and dtype are the field's.

    Raises:
        UnfitData: wrong number of dimensions or sizes, a dtype that would lose values, or no records at all.
    """
    values = array.values
    if values.ndim == 0 or values.shape[1:] != field.shape:
        reason = f"has shape {values.shape}, and the program wants {_wanted(field.shape)}"
        raise refusal(
            "data-wrong-shape",
            reason,
            array.file,
            field=field.name,
            remedy="reshape it; the first dimension is the record",
        )
    if not np.can_cast(values.dtype, field.dtype, "safe"):
        reason = f"is {values.dtype.name}, which {field.dtype} does not hold without loss"
        raise refusal("data-wrong-type", reason, array.file, field=field.name, remedy=f"save it as {field.dtype}")
    if len(values) == 0:
        raise refusal("data-empty", "holds no records", array.file, field=field.name)
    return array


def _wanted(shape: tuple[int, ...]) -> str:
    return "(n" + "".join(f", {size}" for size in shape) + (",)" if not shape else ")")
