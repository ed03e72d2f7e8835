"""Provisioning: a visit's sealed records onto the GPU's port or into its staging, the same bytes until acknowledged. Knows no orchestrator.

Chunks are sealed ahead (bounded) while the GPU is still on its way and while earlier ones travel. A record is sealed once; on a lost
connection the very same buffer is sent again, and the GPU acknowledges a byte-identical repeat without effect (laws L4, L5).
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass

from data_holder.links import GpuLink
from data_holder.sealing import RecordSealer, SealedRecord
from shared.claims.visit import Grant
from shared.errors import Conflict, ProtocolViolation, Refused, Unavailable
from shared.names import TravelMode
from shared.service.clock import Clock
from shared.wire.codec import decode
from shared.wire.copy import CopyAck, StagedAck

INLINE_BYTES = 128 * 1024  # below this a thread hop costs more than reading and sealing
FIRST_RETRY_S, LAST_RETRY_S = 0.002, 0.25
CALL_TIMEOUT_S = 30.0
Sleep = Callable[[float], Awaitable[None]]


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
DOORS = {TravelMode.PAPER: _COPY, TravelMode.SCOPED: _COPY, TravelMode.DIRECT: _STAGING}


@dataclass(frozen=True)
class Provisioned:
    """What was published: bytes sent on the port (headers and tags included, repeats too) and the timers' parts in seconds."""

    commitment: str
    bytes_sent: int
    grab_gpu: float
    buffer_read: float
    gpu_write: float
    export_key: float


class Provisioner:
    """Sends one visit. `attached()` is called once, at the GPU's first acknowledgement."""

    def __init__(
        self, link: GpuLink, clock: Clock, *, prepare_bytes: int, sleep: Sleep = asyncio.sleep,
        attached: Callable[[], None] = lambda: None,
    ) -> None:  # fmt: skip
        self._link, self._clock, self._sleep, self._attached = link, clock, sleep, attached
        self._prepare_bytes = prepare_bytes
        self._sent = 0
        self._write_s = 0.0
        self._first_ack: float | None = None

    async def provision(self, grant: Grant, gpu: str, sealer: RecordSealer) -> Provisioned:
        """Send every record and the closing one; the key is erased whatever happens.

        Raises:
            Refused: `lease-expired`, or the GPU answered something that is no acknowledgement of what was sent.
            Conflict, ProtocolViolation…: the GPU's own refusal (`copy-refused`). UnfitData: the file changed.
        """
        started = time.perf_counter()
        try:
            async with self._prepared(sealer) as records:
                async for record in records:
                    await self._deliver(grant, gpu, record)
            commitment = sealer.commitment
        finally:
            before = time.perf_counter()
            sealer.erase()
            erased_s = time.perf_counter() - before
        grabbed = (self._first_ack or started) - started
        return Provisioned(commitment, self._sent, grabbed, sealer.read_s, self._write_s + sealer.seal_s, erased_s)

    @asynccontextmanager
    async def _prepared(self, sealer: RecordSealer) -> AsyncIterator[AsyncIterator[SealedRecord]]:
        """The visit's records in order, sealed ahead into a ring of reused buffers."""
        count = min(sealer.total + 1, max(2, self._prepare_bytes // sealer.buffer_bytes))
        free: asyncio.Queue[bytearray] = asyncio.Queue()
        ready: asyncio.Queue[tuple[SealedRecord, bytearray]] = asyncio.Queue()
        for _ in range(count):
            free.put_nowait(bytearray(sealer.buffer_bytes))
        producer = asyncio.create_task(_produce(sealer, free, ready))
        try:
            yield _consume(sealer.total, free, ready, producer)
        finally:
            producer.cancel()
            # The thread may still be sealing: the key must not be erased under it.
            await asyncio.wait([producer])

    async def _deliver(self, grant: Grant, gpu: str, record: SealedRecord) -> None:
        """The same bytes until the GPU acknowledges them or the lease ends."""
        pause = FIRST_RETRY_S
        while True:
            left = grant.expires_at - self._clock()
            if left <= 0:
                raise Refused(
                    f"the lease of visit {grant.visit} ended before its data was written", code="lease-expired"
                )
            started = time.perf_counter()
            try:
                self._sent += len(record.data)
                timeout = min(left, CALL_TIMEOUT_S)
                door = DOORS[grant.mode]
                answer = await self._link.leave(door.name, gpu, grant.port, record.data, timeout_s=timeout)
            except Unavailable:
                pass  # nobody knows whether it arrived: the same bytes again
            except Conflict as error:
                if error.code != "port-not-bound":
                    raise
            else:
                door.check(answer, record)
                self._acknowledged(record, started)
                return
            await self._sleep(min(pause, left))
            pause = min(pause * 2, LAST_RETRY_S)

    def _acknowledged(self, record: SealedRecord, started: float) -> None:
        now = time.perf_counter()
        self._write_s += now - started
        self._link.delivered(record.plaintext_bytes, record.proof_bytes)
        if self._first_ack is None:
            self._first_ack = started
            self._attached()


async def _produce(
    sealer: RecordSealer, free: asyncio.Queue[bytearray], ready: asyncio.Queue[tuple[SealedRecord, bytearray]]
) -> None:
    for _ in range(sealer.total + 1):
        buffer = await free.get()
        if sealer.buffer_bytes <= INLINE_BYTES:
            record = sealer.seal_next(buffer)
        else:
            # Shielded: a cancelled visit waits for the thread before its key and dataset go away.
            work = asyncio.ensure_future(asyncio.to_thread(sealer.seal_next, buffer))
            try:
                record = await asyncio.shield(work)
            except asyncio.CancelledError:
                await asyncio.wait([work])
                raise
        ready.put_nowait((record, buffer))


async def _consume(
    total: int, free: asyncio.Queue[bytearray], ready: asyncio.Queue[tuple[SealedRecord, bytearray]],
    producer: asyncio.Task[None],
) -> AsyncIterator[SealedRecord]:  # fmt: skip
    for _ in range(total + 1):
        if ready.empty():
            waiting = asyncio.ensure_future(ready.get())
            await asyncio.wait([waiting, producer], return_when=asyncio.FIRST_COMPLETED)
            if not waiting.done() and producer.done() and producer.exception() is not None:
                waiting.cancel()
                producer.result()  # raises what the producer raised
            record, buffer = await waiting
        else:
            record, buffer = ready.get_nowait()
        yield record
        # Returned to the ring only after the acknowledgement: until then these bytes may be needed again.
        free.put_nowait(buffer)
