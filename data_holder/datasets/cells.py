"""Blocks of CSV cells into record bytes, vectorised, with the line of every cell that is no valid number. Never quotes a cell."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from itertools import chain
from typing import Any, BinaryIO

import numpy as np
from numpy.typing import NDArray

from data_holder.datasets.findings import Finding
from data_holder.datasets.values import Array, FieldScan, little_endian
from shared.claims.records import RecordField, RecordSchema

# Python's own parsers: exact, refuse more than 4300 digits, and faster here than NumPy's by way of string arrays. They also take what is a
# number in programs or in other scripts only (`_plain`): `1_5`, which somebody may have meant as a code or a range, is no 15.
_PARSE: dict[Any, Callable[[str], float]] = {np.float64: float, np.int64: int}

Row = tuple[int, list[str]]  # line number (the header's is 1), cells


def record_dtype(records: RecordSchema) -> np.dtype[Any]:
    """A record as NumPy sees it: the fields one after another, little-endian, without padding."""
    return np.dtype([(field.name, little_endian(field), field.shape) for field in records.fields])


class CellBlocks:
    """Converts blocks of rows of `width` cells; gathers findings, and writes nothing once there is one."""

    def __init__(self, name: str, width: int, records: RecordSchema, plan: dict[str, list[int]]) -> None:
        self._name, self._width, self._records, self._plan = name, width, records, plan
        self._dtype = record_dtype(records)
        self.findings: list[Finding] = []

    def convert(self, block: list[Row], out: BinaryIO) -> int:
        """Append the block's records to `out`; returns how many rows it held."""
        rows = [row for row in block if self._whole(row)]
        lines = np.array([line for line, _ in rows], np.int64)
        table = np.zeros(len(rows), self._dtype)
        for field in self._records.fields:
            values = self._column(field, rows, lines)
            if not self.findings:
                table[field.name] = values.reshape(len(rows), *field.shape)
        if not self.findings:
            out.write(table.tobytes())
        return len(block)

    def _whole(self, row: Row) -> bool:
        line, cells = row
        if len(cells) != self._width:
            self._report(line, f"has {len(cells)} cells where the header has {self._width}", "data-malformed")
            return False
        return True

    def _report(self, line: int, reason: str, code: str, field: str | None = None) -> None:
        remedy = "correct or remove this row"
        self.findings.append(Finding(code, reason, self._name, line, field, remedy))

    def _column(self, field: RecordField, rows: list[Row], lines: NDArray[np.int64]) -> Array:
        """Values (rows, elements) of one field; broken rows are reported and not in it."""
        columns = self._plan[field.name]
        texts = [[cells[number] for number in columns] for _, cells in rows]
        kind: type[np.float64] | type[np.int64] = np.float64 if np.dtype(field.dtype).kind == "f" else np.int64
        values, kept = self._numbers(texts, kind, lines, field)
        if kind is np.float64:
            with np.errstate(over="ignore"):  # what float32 cannot hold becomes infinite and is refused as such
                values = values.astype(field.dtype)
        scan = FieldScan(field, limit=len(values), findings=[])
        scan.feed(self._name, 0, values)
        self.findings += [replace(found, row=int(lines[kept[found.row or 0]])) for found in scan.findings]
        return values

    def _numbers(
        self, texts: list[list[str]], kind: Any, lines: NDArray[np.int64], field: RecordField
    ) -> tuple[Array, NDArray[np.int64]]:
        """Parsed values of the rows that parse, and which rows these are."""
        every = np.arange(len(texts))
        if not texts:
            return np.empty((0, len(self._plan[field.name])), kind), every
        try:
            count, number = len(texts) * len(texts[0]), _PARSE[kind]
            if _plain("".join(chain.from_iterable(texts))):
                return np.fromiter(map(number, chain.from_iterable(texts)), kind, count).reshape(len(texts), -1), every
        except (ValueError, OverflowError):
            pass
        # Some cell is no number: which one is found one by one.
        parsed = [self._row(row, kind, int(line), field) for row, line in zip(texts, lines, strict=True)]
        kept = np.array([i for i, row in enumerate(parsed) if row is not None], np.int64)
        values = [row for row in parsed if row is not None]
        return np.array(values, kind).reshape(len(values), len(self._plan[field.name])), kept

    def _row(self, cells: list[str], kind: Any, line: int, field: RecordField) -> list[float] | None:
        numbers: list[float] = []
        for column, cell in zip(self._plan[field.name], cells, strict=True):
            place = f"cell {column + 1}"
            if not cell.strip():
                self._report(line, f"{place} is empty", "data-wrong-type", field.name)
                return None
            try:
                if not _plain(cell):
                    raise ValueError
                numbers.append(kind(_PARSE[kind](cell)))
            except (ValueError, OverflowError):
                wanted = "number" if kind is np.float64 else "whole number of 64 bits"
                self._report(line, f"{place} is no {wanted}", "data-wrong-type", field.name)
                return None
        return numbers


def _plain(text: str) -> bool:
    """Whether a parser's numbers in it are those that everybody reads there."""
    return text.isascii() and "_" not in text
