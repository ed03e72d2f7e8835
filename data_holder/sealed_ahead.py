"""A visit's records sealed ahead into a ring of slots, and handed on in order. Knows no GPU and no retry.

A slot is written to again only when its record was acknowledged: until then its bytes may be needed once more (laws L4, L5). Whoever
brings records takes them from here batch by batch; where there is a doorbell, the thread that seals rings it by itself, and the event loop
has nothing to do until all is acknowledged or something was not taken: to hand every record from thread to loop and back took as long as
half the cipher.
"""

from __future__ import annotations

import asyncio
import threading
from collections import deque
from collections.abc import AsyncIterator, Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from typing import Any, Final

from data_holder.batches import Batch
from data_holder.ringing import Ringing, Rung
from data_holder.sealing import RecordSealer
from data_holder.slots import Lying, Slot
from shared.service.threads import ended

INLINE_BYTES = 128 * 1024
"""Below this a thread hop costs more than reading and sealing."""
LOOK_S: Final = 0.05
"""How often a thread that waits for the GPU's answers looks whether the visit was stopped."""
LOOK_INLINE_S: Final = 1.0
"""How often an event loop that waits for them looks whether it has waited too long."""
TELL_S: Final = 0.1
"""How often it is told what was acknowledged, for whoever watches a long visit: to wake the event loop for it takes as long as half a
record's cipher."""
Told = Callable[[Sequence[Rung]], None]
Heard = Callable[[], object]


class SealedAhead:
    """One visit's. `inline`: all of it is so little that no thread is begun for it."""

    def __init__(self, sealer: RecordSealer, slots: Sequence[Slot]) -> None:
        self._sealer = sealer
        self._unsealed = self._left = sealer.total + 1
        self.inline = self._left <= len(slots) and sealer.plain_bytes <= INLINE_BYTES
        # What was used last is used next: as few as the pace allows, and those lie in the processors' caches.
        self._free, self._ready = list(slots), deque[Lying]()
        # The lock is taken for every record; as the condition's own context manager it would cost nearly twice as much.
        self._lock, self._news = threading.Lock(), asyncio.Event()
        self._changed = threading.Condition(self._lock)
        self._bell: _AtTheBell | None = None
        self._stopped = False
        self._failed: BaseException | None = None

    @asynccontextmanager
    async def sealing(self) -> AsyncIterator[None]:
        """Inside the block records are sealed as long as there are slots."""
        if self.inline:
            while self._unsealed:
                self._seal(self._free.pop())
            yield
            return
        loop = asyncio.get_running_loop()
        with ThreadPoolExecutor(1, "seal") as thread:
            work = loop.run_in_executor(thread, self._run, lambda: loop.call_soon_threadsafe(self._news.set))
            try:
                yield
            finally:
                with self._lock:
                    self._stopped = True
                    self._changed.notify()
                # The thread may still be sealing: the key must not be erased under it.
                await ended(work)

    @property
    def left(self) -> int:
        """Records that are not acknowledged, the closing one among them."""
        return self._left

    async def batch(
        self, most: int, *, ready: bool, repeats: bool = False, heard: Heard = lambda: None
    ) -> Batch | None:
        """The next records in order, the closing one last: one to `most`; None after the closing one.

        Args:
            most: as many as there are slots, at most. ready: only such as are sealed; else those too that will be while others are
                brought.
            repeats: it may have been brought before. heard: called before each of those is handed out; raises what ends them.

        Raises:
            UnfitData and whatever else sealing raised.
        """
        if not self._left:
            return None
        lying = [await self._next()] if ready else []
        with self._lock:
            # Nothing is under way: what is not acknowledged lies here or has yet to be sealed.
            count = min(most, self._left)
            if ready or self._failed is not None:
                count = min(count, len(lying) + len(self._ready))
            lying += [self._ready.popleft() for _ in range(min(count - len(lying), len(self._ready)))]
            if not count and self._failed is not None:
                raise self._failed
        index = self._sealer.total + 1 - self._left
        lengths = [self._sealer.record_bytes(at) for at in range(index, index + count)]

        async def more() -> Lying:
            lying = await self._next()
            heard()
            return lying

        return Batch(lengths, lying, more, repeats=repeats)

    async def _next(self) -> Lying:
        """The next record, once it is sealed. Raises: what sealing raised."""
        while True:
            self._news.clear()
            with self._lock:
                if self._ready:
                    return self._ready.popleft()
                if self._failed is not None:
                    raise self._failed
            await self._news.wait()

    def give_back(self, batch: Sequence[Lying]) -> None:
        """These were acknowledged: their slots may be written to."""
        with self._lock:
            self._left -= len(batch)
            self._free.extend(lying.slot for lying in batch)
            self._changed.notify()

    async def rung(self, ringing: Ringing, told: Told) -> None:
        """Have the sealing thread, where there is one, ring for all that is left; `told` hears on this loop what was acknowledged. Returns
        once that is all, or something was not taken, or the lease ended, or sealing had failed before: then the rest lies ready, in order.

        Raises:
            ProtocolViolation: the GPU acknowledged something else. UnfitData and whatever else sealing raised.
        """
        if not self._left:
            return
        if self.inline:
            await self._rung_from_here(ringing, told)
            return
        loop = asyncio.get_running_loop()
        bell = _AtTheBell(ringing, loop, loop.create_future(), told)
        with self._lock:
            if self._failed is not None:
                return  # nobody is there to hear a bell; `batch` hands out what lies ready, and then says why
            self._bell = bell
            self._changed.notify()
        await bell.over

    async def _rung_from_here(self, ringing: Ringing, told: Told) -> None:
        """All of it by one ring, which nobody but this loop waits for."""
        while True:
            ringing.ring(self._ready, more=False, closing_apart=False)
            if found := ringing.acknowledged(0.0):
                self._left -= sum(len(rung.batch) for rung in found)
                for rung in found:
                    rung.let_go()
                told(found)
            if not self._left or ringing.over:
                self._ready.extendleft(reversed(ringing.handed_back()))
                return
            await ringing.said(LOOK_INLINE_S)

    def _run(self, news: Callable[[], Any]) -> None:
        """On the visit's own thread, until it is stopped."""
        try:
            while not self._stopped:
                self._step(news)
        except BaseException as error:
            with self._lock:
                self._failed, bell = error, self._bell
            if bell is not None:
                bell.failed(error)
            news()

    def _step(self, news: Callable[[], Any]) -> None:
        with self._lock:
            bell, slot = self._bell, self._free.pop() if self._unsealed and self._free else None
            if slot is None and bell is None:
                if not self._stopped:  # that was said before this thread could hear it
                    self._changed.wait()  # for a slot, a bell, or the end
                return
        if slot is not None:
            bell = self._seal(slot)  # it may have come meanwhile
            if bell is None:
                news()
        if bell is not None:
            self._ring(bell, LOOK_S if slot is None else 0.0)

    def _ring(self, bell: _AtTheBell, wait_s: float) -> None:
        """While a bell is rung nobody but this thread touches what lies ready."""
        bell.ringing.ring(self._ready, more=bool(self._unsealed and self._free))
        for rung in bell.ringing.acknowledged(wait_s):
            self._left -= len(rung.batch)
            self._free.extend(lying.slot for lying in rung.batch)
            bell.tell(rung)
        if not self._left or bell.ringing.over:
            with self._lock:
                self._ready.extendleft(reversed(bell.ringing.handed_back()))
                self._bell = None
            bell.ended()

    def _seal(self, slot: Slot) -> _AtTheBell | None:
        """One record more lies ready; the bell to ring for it, if there is one by now."""
        lying = Lying(self._sealer.seal_next(slot.memory), slot)
        with self._lock:
            self._unsealed -= 1
            self._ready.append(lying)
            return self._bell


class _AtTheBell:
    """What a thread that rings tells the loop. `over`: done when it rings no more."""

    def __init__(
        self, ringing: Ringing, loop: asyncio.AbstractEventLoop, over: asyncio.Future[None], told: Told
    ) -> None:
        self.ringing, self.over, self._loop, self._told = ringing, over, loop, told
        self._untold: list[Rung] = []
        self._due = 0.0  # the first is told at once: then the GPU has appeared

    def tell(self, rung: Rung) -> None:
        """It was acknowledged."""
        rung.let_go()
        self._untold.append(rung)
        if rung.ended >= self._due:
            self._flush()
            self._due = rung.ended + TELL_S

    def ended(self) -> None:
        """No more is rung."""
        self._flush()
        self._loop.call_soon_threadsafe(self._over, None)

    def failed(self, error: BaseException) -> None:
        """No more is rung, because of this."""
        self._flush()
        self._loop.call_soon_threadsafe(self._over, error)

    def _over(self, error: BaseException | None) -> None:
        if self.over.done():  # nobody waits any more
            return
        if error is None:
            self.over.set_result(None)
        else:
            self.over.set_exception(error)

    def _flush(self) -> None:
        self._loop.call_soon_threadsafe(self._told, self._untold)
        self._untold = []
