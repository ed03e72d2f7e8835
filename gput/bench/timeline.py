"""A transfer as a timeline of stages: when each record is sealed, sent, passed on, if they overlap and if not. Arithmetic; knows no clock.

Stages of a record: the holder seals it; it is sent and opened; it is sealed again and opened by the GPU (`upload`; 0 where it goes there
directly). One by one, each record's stages follow the last record's. Overlapped, the holder seals one record ahead, and a record is sent
while the one before is passed on: what `gput.local.travel`'s sender and relay do.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Stages:
    """Seconds that one record spends in each stage; `fixed`: what a transfer takes besides, for instance to agree a key."""

    seal: float
    send: float
    upload: float
    fixed: float = 0.0

    @property
    def longest(self) -> float:
        """The slowest stage."""
        return max(self.seal, self.send, self.upload)

    @property
    def sum(self) -> float:
        """All stages of one record."""
        return self.seal + self.send + self.upload


def one_by_one(stages: Stages, records: int) -> float:
    """Seconds of a transfer of so many records without any overlap."""
    return stages.fixed + records * stages.sum


def overlapped(stages: Stages, records: int) -> float:
    """Seconds of a transfer whose stages overlap, had each stage a processor of its own."""
    sealed = stages.seal
    acknowledged = uploaded = 0.0
    for index in range(records):
        sent = max(sealed, acknowledged)
        sealed = sent + stages.seal  # of the next one, begun when this one leaves
        # It is passed on when it has come and the one before it is through; then the next may be sent.
        passing = max(sent + stages.send, uploaded)
        uploaded = passing + stages.upload
        acknowledged = passing if index < records - 1 else uploaded
    return stages.fixed + acknowledged


def bounds(stages: Stages, records: int) -> tuple[float, float]:
    """Nothing that overlaps these stages takes less than the first or, without waiting, more than the second."""
    return stages.fixed + records * stages.longest, one_by_one(stages, records)
