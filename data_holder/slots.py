"""Room for sealed records, and sealed records lying in it. Knows no key and no way to the GPU."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from data_holder.sealing import SealedRecord


@dataclass(frozen=True)
class Slot:
    """Room for one sealed record; `offset`: where it begins in the bounce buffer, 0 where there is none."""

    memory: bytearray | memoryview
    offset: int = 0

    def elsewhere(self) -> Slot:
        """As much room in memory of this process's own."""
        return Slot(bytearray(len(self.memory)))


@dataclass(slots=True)
class Lying:
    """A sealed record in its slot, until it is acknowledged."""

    record: SealedRecord
    slot: Slot


def places(batch: Sequence[Lying]) -> list[tuple[int, int]]:
    """(offset, length) of each in the bounce buffer."""
    return [(lying.slot.offset, len(lying.record.data)) for lying in batch]


def bytes_of(batch: Sequence[Lying]) -> int:
    """Of the sealed records, headers and tags included."""
    return sum(len(lying.record.data) for lying in batch)
