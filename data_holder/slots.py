"""Room for sealed records, and sealed records lying in it. Knows no key and no way to the GPU."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple

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


class Brought(NamedTuple):
    """What records came to. `length`: bytes, headers and tags included; `plain`, `proof`: of record data and of membership proof."""

    records: int
    length: int
    plain: int
    proof: int


NOTHING: Final = Brought(0, 0, 0, 0)


def brought(batch: Sequence[Lying]) -> Brought:
    """What these come to."""
    records = [lying.record for lying in batch]
    return Brought(
        len(records),
        sum(len(record.data) for record in records),
        sum(record.plaintext_bytes for record in records),
        sum(record.proof_bytes for record in records),
    )
