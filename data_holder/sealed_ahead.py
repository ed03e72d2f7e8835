"""A visit's records sealed ahead into a ring of slots, and handed on in order, several at once. Knows no GPU, no link and no retry.

A slot is written to again only when its record was acknowledged: until then its bytes may be needed once more (laws L4, L5).
"""

from __future__ import annotations

import asyncio
import queue
from collections.abc import AsyncIterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager

from data_holder.carriers import Lying, Slot
from data_holder.sealing import RecordSealer

INLINE_BYTES = 128 * 1024
"""Below this a thread hop costs more than reading and sealing."""


class SealedAhead:
    """One visit's."""

    def __init__(self, sealer: RecordSealer, slots: Sequence[Slot]) -> None:
        self._sealer, self._free, self._left = sealer, _Free(slots), sealer.total + 1
        self._ready: asyncio.Queue[Lying] = asyncio.Queue()
        self._producer: asyncio.Task[None] | None = None

    @asynccontextmanager
    async def sealing(self) -> AsyncIterator[None]:
        """Inside the block records are sealed as long as there are slots."""
        own_thread = self._sealer.buffer_bytes > INLINE_BYTES
        produce = _produce_apart if own_thread else _produce
        self._producer = producer = asyncio.create_task(produce(self._sealer, self._free, self._ready))
        try:
            yield
        finally:
            producer.cancel()
            # The thread may still be sealing: the key must not be erased under it.
            await _ended(producer)

    async def batch(self, most: int) -> Sequence[Lying]:
        """The next records in order, the closing one last: one to `most`, as many as lie ready; none after the closing one.

        Raises:
            UnfitData and whatever else sealing raised.
        """
        if not self._left:
            return ()
        assert self._producer is not None
        found = [await _next(self._ready, self._producer)]
        while len(found) < most and not self._ready.empty():
            found.append(self._ready.get_nowait())
        self._left -= len(found)
        return found

    def give_back(self, batch: Sequence[Lying]) -> None:
        """These were acknowledged: their slots may be written to."""
        for lying in batch:
            self._free.give(lying.slot)


async def _ended(producer: asyncio.Task[None]) -> None:
    """Until it has ended, however often whoever waits is cancelled meanwhile: a visit may be stopped twice."""
    cancelled: asyncio.CancelledError | None = None
    while not producer.done():
        try:
            await asyncio.wait([producer])
        except asyncio.CancelledError as error:
            cancelled = error
    if cancelled is not None:
        raise cancelled


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


async def _next(ready: asyncio.Queue[Lying], producer: asyncio.Task[None]) -> Lying:
    if not ready.empty():
        return ready.get_nowait()
    waiting = asyncio.ensure_future(ready.get())
    try:
        await asyncio.wait([waiting, producer], return_when=asyncio.FIRST_COMPLETED)
        if not waiting.done() and producer.done() and producer.exception() is not None:
            producer.result()  # raises what the producer raised
        return await waiting
    finally:
        waiting.cancel()
