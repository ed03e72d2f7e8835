"""How sealed records get to the GPU: over HTTP, or by their places in a bounce buffer, named over HTTP or by its doorbell. Knows no
retry."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Final, Literal, Protocol

from data_holder.batches import Batch
from data_holder.bounce import BounceBuffer
from data_holder.doorbell import Doorbell
from data_holder.links import GpuLink
from data_holder.ringing import Ringing
from data_holder.sealing import SealedRecord
from data_holder.slots import Lying, Slot, places
from shared.claims.visit import Grant
from shared.errors import ProtocolViolation
from shared.names import TravelMode
from shared.service.clock import Clock
from shared.wire.bounce import MAX_PLACES, BellAck, Bounced
from shared.wire.codec import decode
from shared.wire.copy import MAX_RECORDS_AT_ONCE, CopyAck, StagedAck

PAGE: Final = 4096
LinkName = Literal["http", "bounce"]


class Carrier(Protocol):
    """One way to the GPU's port for one visit. `limit`: records it takes at once; `light`: to ask again and again, until the GPU is there,
    brings no bytes again, and records are sealed before they are brought."""

    name: LinkName
    limit: int
    light: bool

    def slots(self, count: int, length: int) -> list[Slot]:
        """Room for at most `count` records of at most `length` bytes each."""

    async def carry(self, grant: Grant, gpu: str, batch: Batch, *, timeout_s: float) -> float:
        """Bring one to `limit` records there once, as soon as the GPU is at the port; returns when it has acknowledged them, for how many
        seconds it was not there.

        Raises:
            ProtocolViolation, Conflict: as the GPU answered. Unavailable: nobody knows whether they arrived.
        """

    def ringing(self, grant: Grant, gpu: str, clock: Clock, timeout_s: float) -> Ringing | None:
        """How all that is left is brought as it is sealed, where nothing is under way; None: not now, or not by this carrier."""


def _rung(ack: BellAck, last: Lying) -> None:
    _taken(ack, last.record, repeats=False)


def _copied(answer: bytes, batch: Batch) -> None:
    _taken(decode(CopyAck, answer), batch.whole[-1].record, repeats=batch.repeats)


def _taken(ack: CopyAck | BellAck, record: SealedRecord, *, repeats: bool) -> None:
    """The copy engine has taken the record, and published all of them with the closing one, which it may have had before a repeat."""
    if ack.index != record.index or (ack.published != record.closing and not (repeats and ack.published)):
        raise _other(
            f"index {record.index}, published {record.closing}", f"index {ack.index}, published {ack.published}"
        )


def _staged(answer: bytes, batch: Batch) -> None:
    """The last record lies in staging; whether it opens the GPU finds out when it fetches it."""
    ack, record = decode(StagedAck, answer), batch.whole[-1].record
    if ack.index != record.index:
        raise _other(f"index {record.index}", f"index {ack.index}")


def _other(expected: str, got: str) -> ProtocolViolation:
    return ProtocolViolation(
        "the GPU acknowledged something else than what was sent", code="wrong-acknowledgement",
        expected=expected, got=got,
    )  # fmt: skip


@dataclass(frozen=True)
class Door:
    """Where a travel mode's records go on the holder's port; `check` holds the acknowledgement to the records."""

    name: str
    check: Callable[[bytes, Batch], None]


_COPY, _STAGING = Door("copy", _copied), Door("staging", _staged)
DOORS: Final = {TravelMode.PAPER: _COPY, TravelMode.SCOPED: _COPY, TravelMode.DIRECT: _STAGING}


class HttpCarrier:
    """Records end to end in a request's body. Each request waits for the one before it: two connections keep no order."""

    name: LinkName = "http"
    limit = MAX_RECORDS_AT_ONCE
    light = False

    def __init__(self, link: GpuLink) -> None:
        self._link = link

    def slots(self, count: int, length: int) -> list[Slot]:
        """Memory of this process."""
        return [Slot(bytearray(length)) for _ in range(count)]

    async def carry(self, grant: Grant, gpu: str, batch: Batch, *, timeout_s: float) -> float:
        """As `Carrier`. Raises: what sealing raised, too."""
        door = DOORS[grant.mode]
        wait_s = timeout_s / 2 if door is _COPY else 0.0
        answer = await self._link.stream(
            door.name, gpu, grant.port, batch.records(), batch.length, timeout_s=timeout_s, wait_s=wait_s
        )
        door.check(answer, batch)
        return answer.waited_s

    def ringing(self, grant: Grant, gpu: str, clock: Clock, timeout_s: float) -> Ringing | None:
        """There is no bell."""
        return None


class BounceCarrier:
    """Records lie in memory that the agent sees; a request says where, or the doorbell."""

    name: LinkName = "bounce"
    limit = MAX_PLACES
    light = True

    def __init__(self, link: GpuLink, buffer: BounceBuffer, bell: Doorbell) -> None:
        self._link, self._buffer, self._bell = link, buffer, bell

    def slots(self, count: int, length: int) -> list[Slot]:
        """Places in the buffer, as many as it has; none where a record does not fit in twice."""
        step = -(-length // PAGE) * PAGE
        count = min(count, len(self._buffer.memory) // step)
        if count < 2:
            return []
        whole = memoryview(self._buffer.memory)
        return [Slot(whole[at : at + length], at) for at in range(0, count * step, step)]

    async def carry(self, grant: Grant, gpu: str, batch: Batch, *, timeout_s: float) -> float:
        """As `Carrier`. Raises: NotFound `unknown-bounce-buffer`, as well: the agent began anew."""
        named = Bounced(buffer=self._buffer.name, number=self._buffer.number(), places=places(batch.named()))
        answer = await self._link.bounced(gpu, grant.port, named, timeout_s=timeout_s, wait_s=timeout_s / 2)
        _copied(answer, batch)
        return answer.waited_s

    def ringing(self, grant: Grant, gpu: str, clock: Clock, timeout_s: float) -> Ringing | None:
        """At the buffer's doorbell. What was not taken there has been carried: a new turn."""
        self._bell.again()
        return Ringing(self._bell, grant, gpu, clock, _rung, timeout_s) if self._bell.open else None


@contextmanager
def carrier_for(grant: Grant, link: GpuLink, buffer: BounceBuffer | None) -> Iterator[Carrier]:
    """The fastest that there is. Staged records are the agent's to keep, so they come over HTTP."""
    if buffer is None or DOORS[grant.mode] is not _COPY:
        yield HttpCarrier(link)
        return
    with buffer.bell() as bell:
        yield BounceCarrier(link, buffer, bell)
