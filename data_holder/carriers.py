"""How sealed records get to the GPU: over HTTP, or several at once by their places in a bounce buffer, named over HTTP or by its
doorbell. Knows no retry."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Final, Literal, Protocol

from data_holder.bounce import BounceBuffer
from data_holder.doorbell import Answer, Doorbell
from data_holder.links import GpuLink
from data_holder.sealing import SealedRecord
from shared.claims.visit import Grant
from shared.errors import ProtocolViolation
from shared.names import TravelMode
from shared.wire.bounce import Bounced
from shared.wire.codec import decode
from shared.wire.copy import MAX_RECORDS_AT_ONCE, CopyAck, StagedAck

PAGE: Final = 4096
LinkName = Literal["http", "bounce"]


@dataclass(frozen=True)
class Slot:
    """Room for one sealed record; `offset`: where it begins in the bounce buffer, 0 where there is none."""

    memory: bytearray | memoryview
    offset: int = 0


@dataclass(frozen=True)
class Lying:
    """A sealed record in its slot, until it is acknowledged."""

    record: SealedRecord
    slot: Slot


class Carrier(Protocol):
    """One way to the GPU's port for one visit. `most`: records it takes at once; `first`: the same, until somebody knows that the GPU is
    there."""

    name: LinkName
    first: int
    most: int

    @property
    def ordered(self) -> FollowingCarrier | None:
        """Itself, where it keeps order."""

    def slots(self, count: int, length: int) -> list[Slot]:
        """Room for at most `count` records of at most `length` bytes each."""

    async def carry(self, grant: Grant, gpu: str, batch: Sequence[Lying], *, timeout_s: float) -> float:
        """Bring one to `most` records there once, as soon as the GPU is at the port; returns when it has acknowledged them, for how many
        seconds it was not there.

        Raises:
            ProtocolViolation, Conflict: as the GPU answered. Unavailable: nobody knows whether they arrived.
        """


class FollowingCarrier(Carrier, Protocol):
    """A way that keeps order, so that batches may follow others that are under way. `depth`: how many at once."""

    depth: int

    @property
    def open(self) -> bool:
        """Whether a batch may follow now."""

    def follow(self, grant: Grant, gpu: str, batch: Sequence[Lying], *, timeout_s: float) -> Answer:
        """Send a batch behind those under way; at once, so that order is that of the calls. The answer's result, for `followed`, is None
        where it did not arrive, or nobody knows: then nothing follows until all of them have been carried, and `resume` was called.
        """

    def followed(self, answer: bytes, batch: Sequence[Lying]) -> None:
        """Hold an answer to the batch that it is for. Raises: ProtocolViolation `wrong-acknowledgement`."""

    def resume(self) -> None:
        """Whatever did not arrive has been carried."""


def _copied(answer: bytes, record: SealedRecord) -> None:
    """The copy engine has taken the record, and published all of them with the closing one."""
    ack = decode(CopyAck, answer)
    _same(f"index {record.index}, published {record.closing}", f"index {ack.index}, published {ack.published}")


def _staged(answer: bytes, record: SealedRecord) -> None:
    """The record lies in staging; whether it opens the GPU finds out when it fetches it."""
    _same(f"index {record.index}", f"index {decode(StagedAck, answer).index}")


def _same(expected: str, got: str) -> None:
    if expected != got:
        raise ProtocolViolation(
            "the GPU acknowledged something else than what was sent",
            code="wrong-acknowledgement",
            expected=expected,
            got=got,
        )


@dataclass(frozen=True)
class Door:
    """Where a travel mode's records go on the holder's port; `check` holds the acknowledgement to the record."""

    name: str
    check: Callable[[bytes, SealedRecord], None]


_COPY, _STAGING = Door("copy", _copied), Door("staging", _staged)
DOORS: Final = {TravelMode.PAPER: _COPY, TravelMode.SCOPED: _COPY, TravelMode.DIRECT: _STAGING}


class HttpCarrier:
    """Records end to end in a request's body: half of the slots at once, so that the others fill meanwhile. Each request waits for the one
    before it: two connections keep no order."""

    name: LinkName = "http"
    first = 1
    ordered = None

    def __init__(self, link: GpuLink) -> None:
        self._link, self.most = link, 1

    def slots(self, count: int, length: int) -> list[Slot]:
        """Memory of this process."""
        self.most = max(1, min(count // 2, MAX_RECORDS_AT_ONCE))
        return [Slot(bytearray(length)) for _ in range(count)]

    async def carry(self, grant: Grant, gpu: str, batch: Sequence[Lying], *, timeout_s: float) -> float:
        """As `Carrier`."""
        door = DOORS[grant.mode]
        records = (lying.record.data for lying in batch)
        wait_s = timeout_s / 2 if door is _COPY else 0.0
        answer = await self._link.leave(door.name, gpu, grant.port, *records, timeout_s=timeout_s, wait_s=wait_s)
        door.check(answer, batch[-1].record)
        return answer.waited_s


class BounceCarrier:
    """Records lie in memory that the agent sees; a request says where, or the doorbell where that is open. Several batches are under
    way while others are sealed."""

    name: LinkName = "bounce"
    depth = 3

    def __init__(self, link: GpuLink, buffer: BounceBuffer, bell: Doorbell) -> None:
        self._link, self._buffer, self._bell, self.first, self.most = link, buffer, bell, 1, 1

    @property
    def ordered(self) -> FollowingCarrier:
        """As `Carrier`."""
        return self

    def slots(self, count: int, length: int) -> list[Slot]:
        """Places in the buffer, as many as it has; none where a record does not fit in twice."""
        step = -(-length // PAGE) * PAGE
        count = min(count, len(self._buffer.memory) // step)
        if count < 2:
            return []
        self.first = self.most = max(1, count // (self.depth + 1))
        whole = memoryview(self._buffer.memory)
        return [Slot(whole[at : at + length], at) for at in range(0, count * step, step)]

    async def carry(self, grant: Grant, gpu: str, batch: Sequence[Lying], *, timeout_s: float) -> float:
        """As `Carrier`. Raises: NotFound `unknown-bounce-buffer`, as well: the agent began anew."""
        named = Bounced(buffer=self._buffer.name, number=self._buffer.number(), places=_places(batch))
        answer = await self._link.bounced(gpu, grant.port, named, timeout_s=timeout_s, wait_s=timeout_s / 2)
        _copied(answer, batch[-1].record)
        return answer.waited_s

    @property
    def open(self) -> bool:
        """Whether the doorbell is."""
        return self._bell.open

    def follow(self, grant: Grant, gpu: str, batch: Sequence[Lying], *, timeout_s: float) -> Answer:
        """By the doorbell."""
        return self._link.ring(self._bell, gpu, grant.port, _places(batch), timeout_s=timeout_s)

    def followed(self, answer: bytes, batch: Sequence[Lying]) -> None:
        """As `FollowingCarrier`."""
        _copied(answer, batch[-1].record)

    def resume(self) -> None:
        """Ring on."""
        self._bell.again()


def _places(batch: Sequence[Lying]) -> list[tuple[int, int]]:
    return [(lying.slot.offset, len(lying.record.data)) for lying in batch]


@contextmanager
def carrier_for(grant: Grant, link: GpuLink, buffer: BounceBuffer | None) -> Iterator[Carrier]:
    """The fastest that there is. Staged records are the agent's to keep, so they come over HTTP."""
    if buffer is None or DOORS[grant.mode] is not _COPY:
        yield HttpCarrier(link)
        return
    with buffer.bell() as bell:
        yield BounceCarrier(link, buffer, bell)
