"""Provisioning: a visit's sealed records onto the GPU's port or into its staging, the same bytes until acknowledged. Knows no orchestrator.

Chunks are sealed ahead (bounded) while the GPU is still on its way and while earlier ones travel. A record is sealed once; on a lost
connection the very same buffer is sent again, and the GPU acknowledges a byte-identical repeat without effect (laws L4, L5).
"""

from __future__ import annotations

import asyncio
import queue
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from dataclasses import dataclass

from data_holder.bounce import BounceLink
from data_holder.carriers import Carrier, HttpCarrier, LinkName, Lying, Slot, carrier_for
from data_holder.links import GpuLink
from data_holder.sealing import RecordSealer
from shared.claims.visit import Grant
from shared.errors import Conflict, NotFound, Refused, Unavailable
from shared.service.clock import Clock

INLINE_BYTES = 128 * 1024  # below this a thread hop costs more than reading and sealing
FIRST_RETRY_S, LAST_RETRY_S = 0.002, 0.25
CALL_TIMEOUT_S = 30.0
Sleep = Callable[[float], Awaitable[None]]


@dataclass(frozen=True)
class Provisioned:
    """What was published: by which link, bytes sent on the port (headers, tags and repeats included), the timers' parts in seconds."""

    commitment: str
    link: LinkName
    bytes_sent: int
    grab_gpu: float
    buffer_read: float
    gpu_write: float
    export_key: float


class Provisioner:
    """Sends one visit. `attached()` is called once, at the GPU's first acknowledgement."""

    def __init__(
        self, link: GpuLink, clock: Clock, *, prepare_bytes: int, bounce: BounceLink, sleep: Sleep = asyncio.sleep,
        attached: Callable[[], None] = lambda: None,
    ) -> None:  # fmt: skip
        self._link, self._clock, self._sleep, self._attached, self._bounce = link, clock, sleep, attached, bounce
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
            with self._bounce.lend() as buffer:
                carrier = await self._send(grant, gpu, sealer, carrier_for(grant, self._link, buffer))
            commitment = sealer.commitment
        finally:
            before = time.perf_counter()
            sealer.erase()
            erased_s = time.perf_counter() - before
        grabbed = (self._first_ack or started) - started
        written_s = self._write_s + sealer.seal_s
        return Provisioned(commitment, carrier.name, self._sent, grabbed, sealer.read_s, written_s, erased_s)

    async def _send(self, grant: Grant, gpu: str, sealer: RecordSealer, carrier: Carrier) -> Carrier:
        """The carrier that brought the last record: an agent that began anew knows no buffer, and the rest goes over HTTP."""
        count = min(sealer.total + 1, max(2, self._prepare_bytes // sealer.buffer_bytes))
        slots = carrier.slots(count, sealer.buffer_bytes)
        if not slots:
            carrier = HttpCarrier(self._link)
            slots = carrier.slots(count, sealer.buffer_bytes)
        async with self._prepared(sealer, slots, carrier.most) as batches:
            async for batch in batches:
                try:
                    await self._deliver(grant, gpu, batch, carrier)
                except NotFound as error:
                    if error.code != "unknown-bounce-buffer":
                        raise
                    carrier = HttpCarrier(self._link)
                    for lying in batch:
                        await self._deliver(grant, gpu, [lying], carrier)
        return carrier

    @asynccontextmanager
    async def _prepared(
        self, sealer: RecordSealer, slots: list[Slot], most: int
    ) -> AsyncIterator[AsyncIterator[Sequence[Lying]]]:
        """The visit's records in order, at most `most` at once, sealed ahead into a ring of reused slots."""
        ready: asyncio.Queue[Lying] = asyncio.Queue()
        free = _Free(slots)
        own_thread = sealer.buffer_bytes > INLINE_BYTES
        producer = asyncio.create_task((_produce_apart if own_thread else _produce)(sealer, free, ready))
        try:
            yield _consume(sealer.total + 1, most, free, ready, producer)
        finally:
            producer.cancel()
            # The thread may still be sealing: the key must not be erased under it.
            await asyncio.wait([producer])

    async def _deliver(self, grant: Grant, gpu: str, batch: Sequence[Lying], carrier: Carrier) -> None:
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
                self._sent += sum(len(lying.record.data) for lying in batch)
                await carrier.carry(grant, gpu, batch, timeout_s=min(left, CALL_TIMEOUT_S))
            except Unavailable:
                pass  # nobody knows whether they arrived: the same bytes again
            except Conflict as error:
                if error.code != "port-not-bound":
                    raise
            else:
                self._acknowledged(batch, started)
                return
            await self._sleep(min(pause, left))
            pause = min(pause * 2, LAST_RETRY_S)

    def _acknowledged(self, batch: Sequence[Lying], started: float) -> None:
        now = time.perf_counter()
        self._write_s += now - started
        for lying in batch:
            self._link.delivered(lying.record.plaintext_bytes, lying.record.proof_bytes)
        if self._first_ack is None:
            self._first_ack = started
            self._attached()


class _Free:
    """Slots that nobody uses. What was used last is used next: as few as the pace allows, and those lie in the processors' caches."""

    def __init__(self, slots: Sequence[Slot]) -> None:
        self._slots: queue.LifoQueue[Slot | None] = queue.LifoQueue()
        self._given = asyncio.Event()
        for slot in slots:
            self.give(slot)

    def give(self, slot: Slot) -> None:
        """It may be written to again. On the event loop's thread."""
        self._slots.put_nowait(slot)
        self._given.set()

    def close(self) -> None:
        """Nothing more is sealed: whoever waits in `wait` gets None at once."""
        self._slots.put_nowait(None)

    def wait(self) -> Slot | None:
        """The next one, on a thread that may stand still; None: there will be none."""
        return self._slots.get()

    async def next(self) -> Slot:
        """The next one, on the event loop's thread."""
        while True:
            self._given.clear()
            try:
                slot = self._slots.get_nowait()
            except queue.Empty:
                await self._given.wait()
            else:
                assert slot is not None  # `close` is for the other thread
                return slot


async def _produce(sealer: RecordSealer, free: _Free, ready: asyncio.Queue[Lying]) -> None:
    for _ in range(sealer.total + 1):
        slot = await free.next()
        ready.put_nowait(Lying(sealer.seal_next(slot.memory), slot))


async def _produce_apart(sealer: RecordSealer, free: _Free, ready: asyncio.Queue[Lying]) -> None:
    """All records on one thread of this visit's: between two of them it waits for a slot, and not for the event loop, which is sending."""
    loop = asyncio.get_running_loop()

    def seal() -> None:
        for _ in range(sealer.total + 1):
            slot = free.wait()
            if slot is None:
                return
            loop.call_soon_threadsafe(ready.put_nowait, Lying(sealer.seal_next(slot.memory), slot))

    with ThreadPoolExecutor(1, "seal") as thread:
        work = loop.run_in_executor(thread, seal)
        try:
            await asyncio.shield(work)
        except asyncio.CancelledError:
            # Waited for: a cancelled visit's key and dataset go away.
            free.close()
            await asyncio.wait([work])
            raise


async def _consume(
    left: int, most: int, free: _Free, ready: asyncio.Queue[Lying], producer: asyncio.Task[None]
) -> AsyncIterator[Sequence[Lying]]:
    while left:
        batch = [await _next(ready, producer)]
        while len(batch) < most and not ready.empty():
            batch.append(ready.get_nowait())
        left -= len(batch)
        yield batch
        # Returned to the ring only after the acknowledgement: until then these bytes may be needed again.
        for lying in batch:
            free.give(lying.slot)


async def _next(ready: asyncio.Queue[Lying], producer: asyncio.Task[None]) -> Lying:
    if not ready.empty():
        return ready.get_nowait()
    waiting = asyncio.ensure_future(ready.get())
    await asyncio.wait([waiting, producer], return_when=asyncio.FIRST_COMPLETED)
    if not waiting.done() and producer.done() and producer.exception() is not None:
        waiting.cancel()
        producer.result()  # raises what the producer raised
    return await waiting
