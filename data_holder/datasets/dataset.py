"""What every dataset is: n records of fixed length, read by cursor and checked. Knows no file format and no network."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from types import TracebackType
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from data_holder.datasets.files import HeldFile
from data_holder.datasets.findings import Finding, UnfitData
from data_holder.datasets.options import DatasetOptions, GoOn, unhindered
from data_holder.datasets.values import Array, FieldScan, Number
from shared.claims.records import RecordField, RecordSchema
from shared.claims.visit import MAX_CHUNK_BYTES, CursorRange
from shared.protocol.record_order import records_of

Buffer = bytearray | memoryview
BLOCK_BYTES = 8 * 1024 * 1024  # work is cut into blocks of about this size, so memory does not grow with the dataset
MAX_BLOCK_ROWS = 1 << 16
MAX_REMEMBERED = 1 << 20  # records of a cursor whose order is kept, 8 bytes each


@dataclass(frozen=True)
class Statistics:
    """A dataset's size, and the least and greatest value per field (empty for text)."""

    records: int
    bytes: int
    fields: dict[str, tuple[Number, Number]] = field(default_factory=dict)

    def as_json(self) -> dict[str, Any]:
        """JSON form, stable names."""
        fields = {name: {"min": low, "max": high} for name, (low, high) in self.fields.items()}
        return {"records": self.records, "bytes": self.bytes, "fields": fields}


@dataclass(frozen=True)
class Block:
    """Consecutive rows of one field: `values` (m, …), of which the first is `first_row` of `file`."""

    file: str
    field: RecordField
    first_row: int
    values: Array


class Dataset(ABC):
    """n records under a schema; position p of a cursor is record order(p // n, p % n), wrapping for ever.

    Blocking; one thread at a time. Close it (or use `with`) to give mappings back.

    Attributes:
        kind: name of the reader.
        schema: the program's record schema.
        records: n >= 1.
        record_bytes: length of one record.
        options: how it was read.
        conversion: of a table, by which rules it was (`CONVERSION`); None where the bytes are the file's own.
    """

    kind: str
    measured = True  # False: extremes of the values mean nothing (text)
    options = DatasetOptions()
    conversion: int | None = None

    def __init__(self, kind: str, schema: RecordSchema, records: int, held: Sequence[HeldFile]) -> None:
        self.kind, self.schema, self.records = kind, schema, records
        self.record_bytes = schema.record_bytes
        self._held = tuple(held)
        self._closed = False
        self._order: tuple[CursorRange, NDArray[np.int64]] | None = None

    @property
    def identity(self) -> bytes:
        """Tells this dataset from any other, without reading it: same files (device, inode, size, mtime) read in the same way."""
        way = (self.kind, self.schema.model_dump_json(), repr(replace(self.options, cache_dir=None)))
        ruled = () if self.conversion is None else (self.conversion,)
        return repr((*way, *ruled, [file.identity for file in self._held])).encode()

    @abstractmethod
    def _gather(self, indexes: NDArray[np.int64], out: NDArray[np.uint8]) -> None:
        """Write records `indexes` (m,) into `out` (m, record_bytes)."""

    @abstractmethod
    def _blocks(self) -> Iterator[Block]:
        """Every stored value once, in blocks, for the scan."""

    @abstractmethod
    def _settle(self) -> None:
        """Whether what was read since the last time may be believed. Raises: UnfitData."""

    @abstractmethod
    def _release(self) -> None:
        """Give every mapping back."""

    def settle(self) -> None:
        """Whether the files are still as they were opened. Raises: UnfitData: one was changed since."""
        self._insist_open()
        for file in self._held:
            file.insist()

    def close(self) -> None:
        """Give every mapping back; the dataset cannot be read any more. Closing twice is harmless."""
        self._closed = True
        self._release()

    def _insist_open(self) -> None:
        if self._closed:
            raise ValueError("the dataset is closed")

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    @property
    def block_records(self) -> int:
        """Records that are best read at once."""
        return min(MAX_BLOCK_ROWS, max(1, BLOCK_BYTES // self.record_bytes))

    def read_into(self, cursor: CursorRange, out: Buffer) -> None:
        """Write the cursor's records end to end into `out`, which must be exactly count · record_bytes long.

        Raises:
            ValueError: `out` has another length.
            UnfitData: a file was changed since the dataset was opened.
        """
        if len(out) != cursor.count * self.record_bytes:
            raise ValueError(f"{len(out)} bytes of room for {cursor.count} records of {self.record_bytes}")
        self._fill(cursor, 0, np.frombuffer(out, np.uint8))
        self._settle()

    def _fill(self, cursor: CursorRange, first: int, flat: NDArray[np.uint8]) -> None:
        self._insist_open()
        target = flat.reshape(-1, self.record_bytes)
        for at in range(0, len(target), self.block_records):
            rows = target[at : at + self.block_records]
            self._gather(self._named(cursor, first + at, len(rows)), rows)

    def _named(self, cursor: CursorRange, first: int, count: int) -> NDArray[np.int64]:
        """As `records_of`. A visit is read slice by slice, and to find its order anew for each would take as long as reading."""
        if cursor.count > MAX_REMEMBERED:
            return records_of(cursor, self.records, first, count)
        if self._order is None or self._order[0] != cursor:
            self._order = cursor, records_of(cursor, self.records)
        return self._order[1][first : first + count]

    def read_records(self, indexes: NDArray[np.int64]) -> bytearray:
        """Records by index, end to end. Raises: UnfitData, as `read_into`."""
        self._insist_open()
        out = bytearray(len(indexes) * self.record_bytes)
        self._gather(indexes, np.frombuffer(out, np.uint8).reshape(-1, self.record_bytes))
        self._settle()
        return out

    def read_slice(self, cursor: CursorRange, offset: int, out: Buffer) -> None:
        """Write bytes [offset, offset + len(out)) of what `read_into` writes: one chunk, whatever the record length.

        Raises:
            ValueError: the range leaves the cursor's bytes.
            UnfitData: a file was changed since the dataset was opened.
        """
        size, end = self.record_bytes, offset + len(out)
        if offset < 0 or end > cursor.count * size:
            raise ValueError(f"bytes [{offset}, {end}) of a cursor of {cursor.count * size} bytes")
        target, at = np.frombuffer(out, np.uint8), 0
        while at < len(target):
            record, skip = divmod(offset + at, size)
            whole = (len(target) - at) // size
            if skip == 0 and whole:
                self._fill(cursor, record, target[at : at + whole * size])
                at += whole * size
            else:  # a record that the slice cuts
                one = np.empty(size, np.uint8)
                self._fill(cursor, record, one)
                part = one[skip : skip + len(target) - at]
                target[at : at + len(part)] = part
                at += len(part)
        self._settle()

    def lying(self, cursor: CursorRange, offset: int, length: int) -> memoryview | None:
        """Bytes [offset, offset + length) of what `read_into` writes, where they lie so in the mapped file: to be used without a copy, and
        believed only once `believe` was asked afterwards. None: they have to be read.
        """
        self._insist_open()
        rows = self._rows()
        if rows is None or cursor.order != "sequential":
            return None
        start = (cursor.start * self.record_bytes + offset) % len(rows)
        return rows[start : start + length] if start + length <= len(rows) else None  # else it wraps

    def _rows(self) -> memoryview | None:
        """All records end to end, read-only, n · record_bytes, where some file holds them so."""
        return None

    def believe(self) -> None:
        """Whether what was used where it lies was the file's, as it was opened. Raises: UnfitData."""
        self._insist_open()
        self._settle()

    def read(self, cursor: CursorRange, chunk_bytes: int = MAX_CHUNK_BYTES) -> Iterator[memoryview]:
        """The cursor's bytes in chunks of `chunk_bytes`, the last one shorter; each chunk is a buffer of its own."""
        total = cursor.count * self.record_bytes
        for offset in range(0, total, chunk_bytes):
            chunk = bytearray(min(chunk_bytes, total - offset))
            self.read_slice(cursor, offset, chunk)
            yield memoryview(chunk)

    def scan(self, limit: int = 20, go_on: GoOn = unhindered) -> tuple[list[Finding], Statistics]:
        """Judge every stored value once: up to `limit` findings per field, and the extremes of the valid values.

        Raises:
            UnfitData: a file was changed since the dataset was opened. Whatever `go_on` raises, which is asked at each block.
        """
        self._insist_open()
        scans = {f.name: FieldScan(f, limit, []) for f in self.schema.fields}
        for block in self._blocks():
            go_on()
            scans[block.field.name].feed(block.file, block.first_row, block.values)
            self._settle()  # before the next block, so that what was found in zeros is never said
        found = [finding for scan in scans.values() for finding in scan.findings]
        extremes = {n: (s.low, s.high) for n, s in scans.items() if s.low is not None and s.high is not None}
        fields = extremes if self.measured else {}
        return found[:limit], Statistics(self.records, self.records * self.record_bytes, fields)

    def check(self) -> None:
        """Scan everything and insist that it fits.

        Raises:
            UnfitData: some value is out of range or not finite.
        """
        found, _ = self.scan()
        if found:
            raise UnfitData(found)

    def statistics(self) -> Statistics:
        """Count, bytes, and per field least and greatest value (not for text)."""
        return self.scan(limit=0)[1]


def as_slice(indexes: NDArray[np.int64]) -> slice | NDArray[np.int64]:
    """The indexes as a slice when they are an ascending progression (a view instead of a gather), else themselves."""
    if len(indexes) == 1:
        return slice(int(indexes[0]), int(indexes[0]) + 1)
    step = int(indexes[1] - indexes[0])
    if step > 0 and (np.diff(indexes) == step).all():
        return slice(int(indexes[0]), int(indexes[-1]) + 1, step)
    return indexes
