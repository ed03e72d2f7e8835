"""The records of one request, of which the last may yet be sealed while the first are on the wire. Knows no way to the GPU and no sealer.

To send again is to begin with the first: what was sealed stays here, byte for byte, until it is acknowledged (laws L4, L5).
"""

from __future__ import annotations

import time
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence

from data_holder.slots import Lying
from shared.errors import ProtocolViolation

More = Callable[[], Awaitable[Lying]]


class Batch:
    """Records in order, for one reader at a time.

    Args:
        lengths: bytes of each, headers and tags included. lying: those that are sealed by now, as many at most.
        more: gives the next one as soon as it is sealed.
        repeats: they may have been brought before, and what comes behind them, too.

    `sent`: bytes handed out so far, repeats included. `waited_s`: how long that waited for records to be sealed.
    """

    def __init__(self, lengths: Sequence[int], lying: Sequence[Lying], more: More, *, repeats: bool = False) -> None:
        self._lengths, self._lying, self._more, self.repeats = lengths, list(lying), more, repeats
        self.sent, self.waited_s = 0, 0.0

    @property
    def count(self) -> int:
        """Records."""
        return len(self._lengths)

    @property
    def length(self) -> int:
        """Bytes of all of them."""
        return sum(self._lengths)

    @property
    def whole(self) -> Sequence[Lying]:
        """All of them. Raises: ProtocolViolation: not all are sealed, so that nobody can have acknowledged the last one."""
        if len(self._lying) < self.count:
            raise ProtocolViolation(
                "the GPU acknowledged a record that it was not sent", code="wrong-acknowledgement",
                expected=f"{self.count} records", got=f"an answer after {len(self._lying)} at most",
            )  # fmt: skip
        return self._lying

    async def records(self) -> AsyncIterator[memoryview]:
        """Each one's bytes, where they lie. Raises: what sealing raised. ProtocolViolation: a record is longer or shorter than was said."""
        for number, length in enumerate(self._lengths):
            data = (await self._at(number)).record.data
            if len(data) != length:  # it would be read into the next one, or the other way round
                raise ProtocolViolation("a record has another length than its request says", code="record-length")
            self.sent += length
            yield data

    async def singly(self) -> AsyncIterator[Batch]:
        """Each by itself, sealed, to be brought in this order, once nobody knows what became of all together."""
        for number, length in enumerate(self._lengths):
            yield Batch([length], [await self._at(number)], self._more, repeats=True)

    def named(self) -> Sequence[Lying]:
        """All of them, by who hands out places and no bytes. Raises: as `whole`."""
        lying = self.whole
        self.sent += self.length
        return lying

    async def _at(self, number: int) -> Lying:
        if number == len(self._lying):
            began = time.perf_counter()
            self._lying.append(await self._more())
            self.waited_s += time.perf_counter() - began
        return self._lying[number]
