"""The records of one request, of which the last may yet be sealed while the first are on the wire. Knows no way to the GPU and no sealer.

To send again is to begin with the first: what was sealed stays here, byte for byte, until it is acknowledged (laws L4, L5).
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Sequence

from data_holder.slots import Lying
from shared.errors import ProtocolViolation

More = Callable[[], Awaitable[Lying]]


class Batch:
    """Records in order, for one reader at a time. `lengths`: bytes of each, headers and tags included; `lying`: those that are sealed by
    now, as many at most; `more`: gives the next one as soon as it is; `repeats`: they may have been brought before, and what comes behind
    them, too."""

    def __init__(self, lengths: Sequence[int], lying: Sequence[Lying], more: More, *, repeats: bool = False) -> None:
        self._lengths, self._lying, self._more, self.repeats = lengths, list(lying), more, repeats

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
        """Each one's bytes, where they lie. Raises: what sealing raised."""
        for number in range(self.count):
            if number == len(self._lying):
                self._lying.append(await self._more())
            yield self._lying[number].record.data

    def singly(self) -> Iterator[Batch]:
        """Each by itself, to be brought in this order, once nobody knows what became of all together."""
        for number, length in enumerate(self._lengths):
            one = Batch([length], self._lying[number : number + 1], self._more, repeats=True)
            yield one
            self._lying[number:] = [*one.whole, *self._lying[number + 1 :]]
