"""Where a training's batches come from: one buffer from its start, or several in one shuffled order. Knows no visit and no holder."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import numpy as np
import torch
from torch import Tensor

from gpu_agent.workload.records import check_records, decode_batch
from shared.claims.records import RecordSchema
from shared.errors import InvalidData
from shared.protocol.mixture import mixture_order


class PartRefused(InvalidData):
    """A record of one of several buffers is not to be trained on. `part`: which, from 0."""

    part: int = 0


class Source(Protocol):
    """Records in the order in which they are trained on."""

    def check(self, schema: RecordSchema, count: int) -> None:
        """Refuse the first `count` records unless each is inside its declared range. Raises: InvalidData."""

    def batch(self, schema: RecordSchema, start: int, stop: int) -> dict[str, Tensor]:
        """Records [start, stop) of that order, as `decode_batch` gives them."""


class Buffer:
    """One visit's records (uint8, one-dimensional, end to end) as they lie there."""

    def __init__(self, data: Tensor) -> None:
        self._data = data

    def check(self, schema: RecordSchema, count: int) -> None:
        """See `Source.check`."""
        check_records(self._data, schema, count)

    def batch(self, schema: RecordSchema, start: int, stop: int) -> dict[str, Tensor]:
        """See `Source.batch`: where the schema has one field, without a copy."""
        return decode_batch(self._data, schema, start, stop)


class Mixture:
    """Several visits' records in one shuffled order, which is computed batch by batch: nothing grows with their number.

    Args:
        parts: each visit's buffer (uint8, one-dimensional) and how many records of it take part, in the visits' order.
        seed: of the order (`shared.protocol.mixture`).
    """

    def __init__(self, parts: Sequence[tuple[Tensor, int]], seed: int) -> None:
        self._parts = tuple(parts)
        self._ends = np.cumsum([count for _, count in parts])
        self.records = int(self._ends[-1])
        self._order = mixture_order(seed, self.records)

    def check(self, schema: RecordSchema, count: int) -> None:
        """See `Source.check`: all of every part, whose number the refusal names.

        Raises:
            PartRefused.
        """
        if count > self.records:
            raise InvalidData(f"The buffers hold {self.records} records, fewer than {count}", code="too-few-records")
        for number, (data, records) in enumerate(self._parts):
            try:
                check_records(data, schema, records)
            except InvalidData as error:
                refused = PartRefused(
                    f"Visit {number + 1} of the tour: {error.detail}", code=error.code, remedy=error.remedy
                )
                refused.part = number
                raise refused from None

    def batch(self, schema: RecordSchema, start: int, stop: int) -> dict[str, Tensor]:
        """See `Source.batch`: rows gathered into memory of their own."""
        size, device = schema.record_bytes, self._parts[0][0].device
        wanted = self._order.records(np.arange(start, stop, dtype=np.int64))
        part_of = np.searchsorted(self._ends, wanted, side="right")
        rows = torch.empty((stop - start, size), dtype=torch.uint8, device=device)
        for number in np.unique(part_of).tolist():
            data, records = self._parts[number]
            places = np.flatnonzero(part_of == number)
            inside = torch.from_numpy(wanted[places] - (int(self._ends[number]) - records)).to(device)
            rows[torch.from_numpy(places).to(device)] = data[: records * size].view(records, size)[inside]
        return decode_batch(rows.view(-1), schema, 0, stop - start)
