"""Staging: sealed records that wait for the copy engine to fetch them. Host memory: whatever lies here is believed only once it opens.

Knows no key and no grant's meaning; who may leave how much is the copy engine's to say.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from shared.errors import LimitExceeded


@dataclass
class Staged:
    """What was left for one epoch: records by index, `size` bytes in all, within bounds of number and bytes."""

    max_records: int
    max_bytes: int
    records: dict[int, bytes] = field(default_factory=dict)
    size: int = 0


class Staging:
    """Records by epoch."""

    def __init__(self) -> None:
        self._epochs: dict[int, Staged] = {}

    def open(self, epoch: int, max_records: int, max_bytes: int) -> None:
        """Make room for one visit's records."""
        self._epochs[epoch] = Staged(max_records, max_bytes)

    def put(self, epoch: int, index: int, record: bytes) -> int:
        """Leave a record; the same index again takes its place. Bytes that lie there now.

        Raises:
            LimitExceeded `staging-full`: more than the visit can have, or no room was made. Nothing changed.
        """
        room = self._epochs.get(epoch)
        if room is None or index >= room.max_records:
            raise LimitExceeded(f"staging has no place for record {index} of epoch {epoch}", code="staging-full")
        size = room.size - len(room.records.get(index, b"")) + len(record)
        if size > room.max_bytes:
            raise LimitExceeded(f"staging takes {room.max_bytes} bytes for epoch {epoch}", code="staging-full")
        room.records[index], room.size = record, size
        return size

    def take(self, epoch: int) -> list[bytes]:
        """What was left for an epoch, by index; nothing is left afterwards, and nothing more is taken in."""
        room = self._epochs.pop(epoch, None)
        return [] if room is None else [room.records[index] for index in sorted(room.records)]

    def discard(self, epoch: int) -> None:
        """Forget an epoch's records."""
        self._epochs.pop(epoch, None)
