"""Ranges and finiteness, vectorised: which rows of a block break a field's rule. Reports positions and rules, never values."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from data_holder.datasets.findings import Finding
from shared.claims.records import RecordField

Array = NDArray[Any]
Number = int | float


def little_endian(field: RecordField) -> np.dtype[Any]:
    """The field's dtype as it lies in a record."""
    return np.dtype(field.dtype).newbyteorder("<")


def bounds(field: RecordField) -> tuple[Number, Number]:
    """The closed interval of valid values: the declared range, narrowed to what the dtype can hold."""
    dtype = np.dtype(field.dtype)
    if dtype.kind == "f":
        info = np.finfo(dtype)
        low, high = float(info.min), float(info.max)
        return max(low, field.min if field.min is not None else low), min(
            high, field.max if field.max is not None else high
        )
    limits = np.iinfo(dtype)
    first = limits.min if field.min is None else max(limits.min, math.ceil(field.min))
    last = limits.max if field.max is None else min(limits.max, math.floor(field.max))
    return first, last


def unlimited(field: RecordField, source: np.dtype[Any]) -> bool:
    """True when no value of integer dtype `source` can break the field's rule, so that no scan is needed."""
    if source.kind not in "iub" or np.dtype(field.dtype).kind == "f":
        return False
    low, high = bounds(field)
    if source.kind == "b":
        return low <= 0 and high >= 1
    return low <= np.iinfo(source).min and high >= np.iinfo(source).max


def _interval(field: RecordField) -> str:
    low, high = bounds(field)
    return f"[{low:g}, {high:g}]" if isinstance(low, float) else f"[{low}, {high}]"


def _outside(field: RecordField, values: Array) -> NDArray[np.bool_]:
    low, high = bounds(field)
    if low > high:
        return np.ones(values.shape, np.bool_)
    if values.dtype.kind == "f":
        return ~((values >= low) & (values <= high))  # NaN compares false, infinities lie outside: both are caught
    # Python integers out of the array's dtype would raise in the comparison; no such bound can be broken from that side
    held = np.iinfo(values.dtype) if values.dtype.kind in "iu" else np.iinfo(np.uint8)
    bad = np.zeros(values.shape, np.bool_)
    if low > held.min:
        bad |= values < low if low <= held.max else True
    if high < held.max:
        bad |= values > high if high >= held.min else True
    return bad


@dataclass
class FieldScan:
    """Findings and extremes of one field over blocks that arrive one after another.

    `limit` bounds the findings; the count of broken rows goes on in `broken`.
    """

    field: RecordField
    limit: int
    findings: list[Finding]
    low: Number | None = None
    high: Number | None = None
    broken: int = 0

    def feed(self, file: str, first_row: int, values: Array) -> None:
        """Judge `values` (m, …), whose first row is `first_row` of `file`."""
        if np.dtype(self.field.dtype).kind == "f":
            values = values.astype(self.field.dtype, copy=False)  # judged in the precision the GPU will see
        bad = _outside(self.field, values)
        if bad.any():
            self._report(file, first_row, values, bad)
            values = values[~bad]
        if values.size:
            self.low = _least(self.low, values.min().item())
            self.high = values.max().item() if self.high is None else max(self.high, values.max().item())

    def _report(self, file: str, first_row: int, values: Array, bad: NDArray[np.bool_]) -> None:
        flat = bad.reshape(len(bad), -1)
        rows = np.flatnonzero(flat.any(axis=1))
        self.broken += len(rows)
        for row in rows[: max(0, self.limit - len(self.findings))].tolist():
            element = int(flat[row].argmax())
            value = values.reshape(len(values), -1)[row, element]
            rule = "is not finite" if not np.isfinite(value) else f"lies outside {_interval(self.field)}"
            where = f"element {element}" if flat.shape[1] > 1 else "the value"
            self.findings.append(
                Finding("data-out-of-range", f"{where} {rule}", file, first_row + row, self.field.name,
                        "correct or remove this record, or use a program that declares the range"))  # fmt: skip


def _least(known: Number | None, value: Number) -> Number:
    return value if known is None else min(known, value)
