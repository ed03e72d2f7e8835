"""Overlapping samples cut from streams of tokens that lie in many files. Knows neither text nor shard headers.

A stream is pieces joined end to end. With a field of shape (T+1,), sample i of a stream of L tokens is tokens
i·T … i·T+T inclusive, (L-1)//T samples: neighbours share one token, so every token is once an input and once a target, and
B sequential samples are the B·T+1 tokens that llm.c's loader reads before it advances by B·T (llm.c `dataloader.h`).
What is left behind the last whole sample of a stream is dropped. No sample spans two streams.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view
from numpy.typing import NDArray

from data_holder.datasets.dataset import BLOCK_BYTES, Block, Dataset, as_slice
from data_holder.datasets.files import HeldFile
from data_holder.datasets.findings import refusal
from data_holder.datasets.mappings import Mappings
from data_holder.datasets.values import Array, little_endian, unlimited
from shared.claims.records import RecordField, RecordSchema

_FEW = 4  # samples of one piece up to which copying one by one is faster than a gather


@dataclass(frozen=True)
class Piece:
    """`count` tokens of `dtype` in `file` from byte `offset`; or, without a file, the tokens `constant` themselves."""

    name: str
    count: int
    dtype: np.dtype[Any]
    file: HeldFile | None = None
    offset: int = 0
    constant: bytes = b""


def stream_field(schema: RecordSchema, source: np.dtype[Any], file: str) -> RecordField:
    """The one field of a schema that streams of `source` tokens can fill.

    Raises:
        UnfitData: the schema has several fields, another shape, or a dtype that cannot hold every token.
    """
    remedy = "use a program whose records are one integer field of shape (T+1,), or give the data as arrays"
    field = schema.fields[0]
    if len(schema.fields) != 1 or len(field.shape) != 1 or field.shape[0] < 2:
        reason = "a stream of tokens fills records of one field of shape (T+1,), and the program wants others"
        raise refusal("data-schema-unsupported", reason, file, remedy=remedy)
    if np.dtype(field.dtype).kind not in "iu" or not np.can_cast(source, field.dtype, "safe"):
        reason = f"tokens are {source.name} and the program's {field.dtype} does not hold them all"
        raise refusal("data-wrong-type", reason, file, field=field.name, remedy=remedy)
    return field


class StreamDataset(Dataset):
    """Samples of one or more streams, in the order of the streams."""

    def __init__(
        self, kind: str, schema: RecordSchema, source: np.dtype[Any], streams: Sequence[Sequence[Piece]], name: str
    ) -> None:
        self._field = stream_field(schema, source, name)
        self._source, self._stride = source, self._field.shape[0] - 1
        self._pieces = [piece for stream in streams for piece in stream]
        lengths = [sum(piece.count for piece in stream) for stream in streams]
        samples = [max(0, length - 1) // self._stride for length in lengths]
        if sum(samples) == 0:
            reason = f"holds {max(lengths, default=0)} tokens in a row, and one sample needs {self._stride + 1}"
            raise refusal("data-too-short", reason, name, remedy="bring more data, or a program with a shorter context")
        super().__init__(kind, schema, sum(samples), [piece.file for piece in self._pieces if piece.file is not None])
        self._stream_sample = _starts(samples)  # first sample of each stream
        self._stream_token = _starts(lengths)  # first token of each stream, counted over all streams
        self._piece_token = _starts([piece.count for piece in self._pieces])
        self._mappings = Mappings()
        self.measured = kind != "text"

    def _settle(self) -> None:
        self._mappings.settle()

    def _release(self) -> None:
        self._mappings.close()

    def _tokens(self, number: int) -> Array:
        piece = self._pieces[number]
        if piece.file is None:
            return np.frombuffer(piece.constant, piece.dtype)
        data = self._mappings.bytes_of(piece.file)
        return data[piece.offset : piece.offset + piece.count * piece.dtype.itemsize].view(piece.dtype)

    def _gather(self, indexes: NDArray[np.int64], out: NDArray[np.uint8]) -> None:
        target = out.view(little_endian(self._field))  # (m, T+1)
        stream = np.searchsorted(self._stream_sample, indexes, "right") - 1
        token = self._stream_token[stream] + (indexes - self._stream_sample[stream]) * self._stride
        piece = np.searchsorted(self._piece_token, token, "right") - 1
        order = np.argsort(piece, kind="stable")  # each file is visited once per block
        cuts = np.flatnonzero(np.diff(piece[order])) + 1
        for rows in np.split(order, cuts):
            self._from_piece(int(piece[rows[0]]), rows, token, target)

    def _from_piece(self, number: int, rows: NDArray[np.int64], token: NDArray[np.int64], target: Array) -> None:
        start, end = int(self._piece_token[number]), int(self._piece_token[number + 1])
        inside = token[rows] + self._stride < end
        whole = rows[inside]
        if whole.size > _FEW:
            windows = sliding_window_view(self._tokens(number), self._stride + 1)
            target[as_slice(whole)] = windows[as_slice(token[whole] - start)]
            rows = rows[~inside]
        for row in rows.tolist():
            self._one(number, int(token[row]), target[row])

    def _one(self, number: int, token: int, target: Array) -> None:
        """One sample that begins in piece `number` and may end in a later one."""
        at = 0
        while at < len(target):
            first = token + at - int(self._piece_token[number])
            part = self._tokens(number)[first : first + len(target) - at]
            target[at : at + len(part)] = part
            at, number = at + len(part), number + 1

    def _blocks(self) -> Iterator[Block]:
        if unlimited(self._field, self._source) and not self.measured:
            return
        for number, piece in enumerate(self._pieces):
            step = BLOCK_BYTES // piece.dtype.itemsize
            for first in range(0, piece.count, step):
                yield Block(piece.name, self._field, first, self._tokens(number)[first : first + step])


def _starts(lengths: Sequence[int]) -> NDArray[np.int64]:
    return np.concatenate([np.zeros(1, np.int64), np.cumsum(np.array(lengths, np.int64))])
