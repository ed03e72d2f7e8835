"""Cutting bytes into bulk records and batches that fit a frame. Pure. Knows no key."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TypeVar

from shared.wire.gpu import MAX_BULK_RECORD

T = TypeVar("T")

BATCH_BYTES = 16 * 1024 * 1024
"""Bulk bytes of one batch: a quarter of the largest frame, so that buffers stay small on both ends."""
BATCH_RECORDS = 64


def records_of(data: bytes) -> list[bytes]:
    """`data` as bulk records of at most 2 MiB."""
    return [data[at : at + MAX_BULK_RECORD] for at in range(0, len(data), MAX_BULK_RECORD)]


def batches(items: Iterable[tuple[T, int]]) -> Iterator[list[T]]:
    """Group (item, bytes) so that a group fits one batch by bytes and by records; an item is one record or less."""
    group: list[T] = []
    total = 0
    for item, size in items:
        if group and (total + size > BATCH_BYTES or len(group) == BATCH_RECORDS):
            yield group
            group, total = [], 0
        group.append(item)
        total += size
    if group:
        yield group
