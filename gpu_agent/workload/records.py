"""Records in a dataset buffer: range check and decoding to tensors. Knows no program and no holder; quotes no value."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Final

import torch
from torch import Tensor

from gpu_agent.workload.executor import DTYPES
from shared.claims.records import RecordField, RecordSchema
from shared.errors import InvalidData

_CHECK_BYTES: Final = 4 * 1024 * 1024
_RANGES: Final[dict[str, tuple[int, int]]] = {
    "uint8": (0, 2**8 - 1),
    "uint16": (0, 2**16 - 1),
    "int32": (-(2**31), 2**31 - 1),
    "int64": (-(2**63), 2**63 - 1),
}


def decode_batch(buffer: Tensor, schema: RecordSchema, start: int, stop: int) -> dict[str, Tensor]:
    """Records [start, stop) as one tensor per field, shape (stop - start, *field.shape), the field's dtype.

    Args:
        buffer: uint8, one-dimensional, records end to end. A single-field schema is decoded without a copy.
    Raises:
        InvalidData: the buffer does not hold these records.
    """
    size = schema.record_bytes
    if buffer.dtype != torch.uint8 or buffer.dim() != 1 or not 0 <= start <= stop or stop * size > buffer.numel():
        raise InvalidData(
            f"The buffer of {buffer.numel()} bytes does not hold records {start} to {stop} of {size} bytes each",
            code="too-few-records",
        )
    rows = buffer[start * size : stop * size].view(stop - start, size)
    fields, offset = {}, 0
    for field in schema.fields:
        fields[field.name] = _decode(rows[:, offset : offset + field.size_bytes], field)
        offset += field.size_bytes
    return fields


def _decode(columns: Tensor, field: RecordField) -> Tensor:
    dtype = DTYPES[field.dtype]
    if not columns.is_contiguous() or columns.storage_offset() % dtype.itemsize:
        columns = columns.clone(memory_format=torch.contiguous_format)
    return columns.view(dtype).view(columns.shape[0], *field.shape)


def least_records(schema: RecordSchema, count: int) -> dict[str, Tensor]:
    """A batch of `count` records of the least valid values; nobody's data."""
    batch = {}
    for field in schema.fields:
        least = field.min if field.min is not None else min(0.0, field.max if field.max is not None else 0.0)
        if field.dtype != "float32":  # a whole number that is no less
            least = math.ceil(least)
        batch[field.name] = torch.full((count, *field.shape), least, dtype=torch.float64).to(DTYPES[field.dtype])
    return batch


def check_records(buffer: Tensor, schema: RecordSchema, count: int) -> None:
    """Refuse the buffer unless every value of its first `count` records is finite and inside the declared range.

    Bounds of float fields are compared after rounding to the field's own precision.

    Raises:
        InvalidData: names field, record (from 0) and reason, never the value.
    """
    if count * schema.record_bytes > buffer.numel():
        raise InvalidData(
            f"The buffer of {buffer.numel()} bytes holds fewer than {count} records of {schema.record_bytes} bytes",
            code="too-few-records",
        )
    checked = [field for field in schema.fields if _can_be_wrong(field)]
    for start, stop in _chunks(count, schema.record_bytes) if checked else ():
        fields = decode_batch(buffer, schema, start, stop)
        for field in checked:
            _check_field(field, fields[field.name], start)


def _chunks(count: int, record_bytes: int) -> Iterator[tuple[int, int]]:
    step = max(1, _CHECK_BYTES // record_bytes)
    for start in range(0, count, step):
        yield start, min(count, start + step)


def _bounds(field: RecordField) -> tuple[float | int | None, float | int | None]:
    """Declared bounds in the field's own arithmetic; None where the dtype itself cannot exceed them."""
    if field.dtype == "float32":
        return field.min, field.max
    low, high = _RANGES[field.dtype]
    least = None if field.min is None else math.ceil(field.min)
    most = None if field.max is None else math.floor(field.max)
    return (
        least if least is not None and least > low else None,
        most if most is not None and most < high else None,
    )


def _can_be_wrong(field: RecordField) -> bool:
    return field.dtype == "float32" or _bounds(field) != (None, None)


def _check_field(field: RecordField, values: Tensor, first_record: int) -> None:
    low, high = _bounds(field)
    if field.dtype == "float32":
        _refuse_any(field, ~torch.isfinite(values), first_record, "is not a finite number")
    elif field.dtype == "uint16":
        values = values.to(torch.int32)  # PyTorch does not compare uint16
    if low is not None:
        _refuse_any(field, _beyond(values, low, below=True), first_record, f"is below the declared minimum {field.min}")
    if high is not None:
        _refuse_any(
            field, _beyond(values, high, below=False), first_record, f"is above the declared maximum {field.max}"
        )


def _beyond(values: Tensor, bound: float | int, *, below: bool) -> Tensor:
    """Compare without leaving the dtype: a bound outside it is always or never exceeded."""
    if not values.is_floating_point():
        info = torch.iinfo(values.dtype)
        if not info.min <= bound <= info.max:
            return torch.full_like(values, below == (bound > info.max), dtype=torch.bool)
    limit = torch.tensor(bound, dtype=values.dtype, device=values.device)
    return values < limit if below else values > limit


def _refuse_any(field: RecordField, wrong: Tensor, first_record: int, reason: str) -> None:
    if not bool(wrong.any()):
        return
    record = first_record + int(wrong.reshape(wrong.shape[0], -1).any(dim=1).nonzero()[0, 0])
    raise InvalidData(
        f"Field {field.name!r} of record {record} {reason}",
        code="record-out-of-range",
        remedy="Run `gput data inspect` on the dataset with this program; nothing was trained on it.",
    )
