"""Bulk bytes of one batch: taken from the front by commands, given back by answers. Knows no key and no frame."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from typing import Final

from shared.errors import BadRequest, LimitExceeded
from shared.wire.gpu import MAX_BULK_RECORD

MAX_RECORDS: Final = 64
MAX_ANSWER_BYTES: Final = 60 * 1024 * 1024  # within a frame, beside the answers themselves


class Bulk:
    """The opened records of a batch and the plaintexts that its answer will carry."""

    def __init__(self, records: Sequence[bytes] = ()) -> None:
        self._left = deque(records)
        self.answer: list[bytes | memoryview] = []
        self._answer_bytes = 0

    def take_records(self, count: int) -> list[bytes]:
        """The next `count` records.

        Raises:
            BadRequest: there are fewer. LimitExceeded: one is longer than a record may be.
        """
        if count > len(self._left):
            raise BadRequest("the batch has fewer bulk records than its commands name", code="bulk-mismatch")
        records = [self._left.popleft() for _ in range(count)]
        if any(len(record) > MAX_BULK_RECORD for record in records):
            raise LimitExceeded(f"a bulk record has at most {MAX_BULK_RECORD} bytes", code="bulk-too-large")
        return records

    def take(self, count: int, length: int) -> bytes:
        """The next `count` records as one byte string of exactly `length` bytes.

        Raises:
            BadRequest.
        """
        data = b"".join(self.take_records(count))
        if len(data) != length:
            raise BadRequest(
                "the bulk records have another length than the command states", code="bulk-mismatch",
                expected=str(length), got=str(len(data)),
            )  # fmt: skip
        return data

    def give(self, piece: bytes | memoryview) -> None:
        """Add one record (at most MAX_BULK_RECORD bytes) to the answer.

        Raises:
            LimitExceeded: one frame cannot carry it.
        """
        self._answer_bytes += len(piece)
        if len(piece) > MAX_BULK_RECORD or len(self.answer) == MAX_RECORDS or self._answer_bytes > MAX_ANSWER_BYTES:
            raise LimitExceeded("the batch asks for more bulk than one frame carries", code="bulk-too-large")
        self.answer.append(piece)
