"""CSV with a header row as feature/label records, converted once into a mapped file. Never quotes a cell or a header in an error.

Columns of a field: `options.columns` when given; else, for the only scalar field, the column `options.label` when the operator named
one; else, for a scalar field, the column of its own name, or the usual label when it is the only one; else, for the one field with a
shape, all other columns, in order, as many as it has elements. What is said of columns counts, or is refused (`options.insist`).
"""

from __future__ import annotations

import csv
from collections.abc import Iterator
from itertools import islice
from math import prod
from pathlib import Path
from typing import Any, BinaryIO

from data_holder.datasets.arrays import ArrayDataset, NamedArray
from data_holder.datasets.cache import CONVERSION, converted
from data_holder.datasets.cells import CellBlocks, Row, record_dtype
from data_holder.datasets.dataset import Dataset
from data_holder.datasets.files import HeldFile, hold
from data_holder.datasets.findings import UnfitData, refusal
from data_holder.datasets.mappings import Mappings
from data_holder.datasets.options import DatasetOptions
from shared.canonical import json_bytes
from shared.claims.records import RecordField, RecordSchema

ROWS = 4096  # parsed at once
MAX_FINDINGS = 20


def open_csv(path: Path, records: RecordSchema, options: DatasetOptions) -> Dataset:
    """Records from a CSV file; every cell is parsed and judged before the first record is given out.

    Raises:
        UnfitData: no header, missing columns, rows of another length, cells that are no number or out of range, no rows, an option that no
            field takes.
    """
    file, maps = hold(path), Mappings()
    if file.size == 0:
        raise refusal("data-empty", "holds not one byte", file.name)
    if options.insist:
        _insist_on_fields(records, options, file.name)
    # A release of before read a named label otherwise: what it converted is not believed.
    way = "csv, label first" if _named(options) else "csv"
    recipe = json_bytes([way, records.model_dump(mode="json"), options.label, options.delimiter,
                         {name: list(columns) for name, columns in options.columns.items()}])  # fmt: skip
    try:
        data = converted(maps, options, file, recipe, lambda stream: _convert(file, records, options, stream))
    except UnfitData as error:
        error.conversion = CONVERSION
        raise
    table = data.view(record_dtype(records))
    arrays = {field.name: NamedArray(table[field.name], file.name) for field in records.fields}
    dataset = ArrayDataset("csv", records, arrays, [file], maps)
    dataset.conversion = CONVERSION
    return dataset


def _named(options: DatasetOptions) -> bool:
    return options.label != DatasetOptions.label


def _takes_label(records: RecordSchema, options: DatasetOptions) -> bool:
    """Whether the label that is named is some field's column."""
    takers = [field.name for field in records.fields if not field.shape]
    return _named(options) and len(takers) == 1 and takers[0] not in options.columns


def _insist_on_fields(records: RecordSchema, options: DatasetOptions, name: str) -> None:
    """Raises: UnfitData `data-bad-option`: columns or a label for a field that there is not; they would be passed over in silence."""
    fields = {field.name for field in records.fields}
    if unknown := sorted(options.columns.keys() - fields):
        reason = "columns are stated for a field that the program does not declare"
        raise refusal(
            "data-bad-option", reason, name, field=unknown[0], remedy=f"its fields are {', '.join(sorted(fields))}"
        )
    if _named(options) and not _takes_label(records, options):
        reason = "a label column is named, and the program has not exactly one field of one number whose columns are not stated otherwise"
        raise refusal(
            "data-bad-option", reason, name, remedy="leave the label out, and state the columns of each field"
        )


def _convert(file: HeldFile, records: RecordSchema, options: DatasetOptions, out: BinaryIO) -> None:
    """Write the file's records to `out`, or raise with up to `MAX_FINDINGS` findings."""
    delimiter = options.delimiter or ("\t" if file.path.endswith(".tsv") else ",")
    with open(file.path, encoding="utf-8-sig", newline="") as text:
        reader = csv.reader(text, delimiter=delimiter, strict=True)
        rows = _rows(reader, file.name)
        header = next(rows, None)
        if header is None:
            raise refusal("data-empty", "has no header row", file.name)
        plan = _plan(records, header[1], options, file.name)
        table = CellBlocks(file.name, len(header[1]), records, plan)
        written = 0
        while block := list(islice(rows, ROWS)):
            options.converting()
            written += table.convert(block, out)
            if len(table.findings) >= MAX_FINDINGS:
                break
    if table.findings:
        raise UnfitData(sorted(table.findings, key=lambda finding: finding.row or 0)[:MAX_FINDINGS])
    if not written:
        raise refusal("data-empty", "has a header row and no records", file.name)


def _rows(reader: Any, name: str) -> Iterator[Row]:
    """Rows with their line numbers; blank lines are left out."""
    while True:
        try:
            cells = next(reader)
        except StopIteration:
            return
        except UnicodeDecodeError:  # the exception quotes the bytes, hence `from None`
            raise refusal("data-malformed", "is not UTF-8 text near this row", name, reader.line_num + 1) from None
        except csv.Error:
            raise refusal("data-malformed", "is not well-formed CSV here", name, reader.line_num) from None
        if cells:
            yield reader.line_num, cells


def _plan(records: RecordSchema, header: list[str], options: DatasetOptions, name: str) -> dict[str, list[int]]:
    """Column numbers of each field.

    Raises:
        UnfitData: columns that are missing, doubled, or not as many as the field has elements.
    """
    names = [cell.strip() for cell in header]
    if len(set(names)) != len(names):
        raise refusal("data-malformed", "its header names a column twice", name, 1, remedy="rename one of them")
    plan: dict[str, list[int]] = {}
    scalars, taken_first = [field for field in records.fields if not field.shape], _takes_label(records, options)
    for field in records.fields:
        if field.name in options.columns:
            plan[field.name] = [_column(names, column, field, name) for column in options.columns[field.name]]
        elif not field.shape:
            own = field.name if not taken_first and (field.name in names or len(scalars) > 1) else options.label
            plan[field.name] = [_column(names, own, field, name)]
    rest = [field for field in records.fields if field.name not in plan]
    if len(rest) > 1:
        reason = "several fields have a shape, so their columns cannot be told apart"
        raise refusal(
            "data-missing-field", reason, name, 1, field=rest[1].name, remedy="state the columns of each field"
        )
    taken = {number for numbers in plan.values() for number in numbers}
    plan |= {field.name: [i for i in range(len(names)) if i not in taken] for field in rest}
    for field in records.fields:
        if len(plan[field.name]) != prod(field.shape):
            reason = f"{len(plan[field.name])} columns for a field of {prod(field.shape)} elements"
            raise refusal("data-wrong-shape", reason, name, 1, field=field.name, remedy="state the field's columns")
    return plan


def _column(names: list[str], wanted: str, field: RecordField, name: str) -> int:
    if wanted not in names:
        reason = f"its header has no column called {wanted!r}"
        raise refusal("data-missing-field", reason, name, 1, field=field.name,
                      remedy="rename the column, or say which column is the label")  # fmt: skip
    return names.index(wanted)
