"""A visit's sealed records rung at a bounce buffer's doorbell, in order, and held to what is answered. Blocking; knows no HTTP, no retry.

What was not answered well stays here, in order, for whoever brings it another way.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

from data_holder.doorbell import Doorbell
from data_holder.slots import NOTHING, Brought, Lying, brought, places
from shared.claims.visit import Grant
from shared.service.clock import Clock
from shared.wire.bounce import BellAck, pack_names
from shared.wire.copy import MAX_PORT_WAIT_MS

RING_BYTES: Final = 512 * 1024
"""What is worth a ring of its own while the GPU has others before it."""
MAX_UNDER_WAY: Final = 64
"""Rings without an answer: the agent hangs up on who reads none of some hundreds."""
MAX_AT_ONCE: Final = 256
MAX_UNSEEN: Final = 2
"""Rings without an answer before the first one: whatever else lies ready when the GPU appears goes by one ring."""
Check = Callable[[BellAck, Lying], None]


@dataclass(slots=True)
class Rung:
    """Records of one ring, when it was rung and answered (`time.perf_counter`), and how long of that the GPU was not at the port;
    `patience_s`: how long it may have waited for it. `brought`: what they came to, once they are let go."""

    batch: Sequence[Lying]
    started: float
    ended: float = 0.0
    waited_s: float = 0.0
    patience_s: float = 0.0
    brought: Brought = NOTHING

    def let_go(self) -> None:
        """Keep of the records only what they came to: objects by the hundred would have Python look for cycles in the middle of a visit,
        which takes as long as two records' cipher."""
        self.brought, self.batch = brought(self.batch), ()


class Ringing:
    """Until everything is acknowledged, or something was not taken, or the lease ends.

    Args:
        check: holds an acknowledgement to the ring's last record. timeout_s: how long a ring may be without an answer.

    `in_vain_s`: how long a ring waited for the GPU and was not taken after all.
    """

    def __init__(self, bell: Doorbell, grant: Grant, gpu: str, clock: Clock, check: Check, timeout_s: float) -> None:
        self._bell, self._grant, self._clock = bell, grant, clock
        self._names = pack_names(gpu, grant.port)
        self._check, self._timeout_s = check, timeout_s
        self._under_way: deque[Rung] = deque()
        self._expired = self._there = False
        self.in_vain_s = 0.0

    @property
    def open(self) -> bool:
        """Whether more may be rung."""
        return self._bell.open and not self._expired

    @property
    def over(self) -> bool:
        """Whether nothing more is rung, and nothing answered."""
        return not self.open and self._bell.silent

    @property
    def broken(self) -> bool:
        """Whether the bell broke: the buffer is of no use any more."""
        return self._bell.broken

    def handed_back(self) -> list[Lying]:
        """What was rung and not acknowledged, in order, for whoever brings it another way.

        Where the bell broke the agent may look there yet, however late: it may have been about to. It finds the record that was rung, which
        is a repeat without effect, and never another, which would end the grant: these places are not written to again.
        """
        left = [lying for rung in self._under_way for lying in rung.batch]
        if self.broken:
            for lying in left:
                lying.slot = lying.slot.elsewhere()
        return left

    def ring(self, ready: deque[Lying], *, more: bool, closing_apart: bool = True) -> None:
        """Ring for what lies ready and take it from there; little of it waits for company while the GPU has other work. The agent waits
        for the GPU with the first ring, until it is at the port.

        Args:
            more: whether more will lie there soon. closing_apart: whether the closing record has a ring of its own.
        """
        most = MAX_UNDER_WAY if self._there else MAX_UNSEEN
        while ready and self.open and len(self._under_way) < most:
            batch = _together(ready, closing_apart)
            if more and self._under_way and sum(len(lying.record.data) for lying in batch) < RING_BYTES:
                return
            if self._clock() >= self._grant.expires_at:
                self._expired = True
                return
            started = time.perf_counter()
            wait_ms = 0 if self._there or self._under_way else self._patience_ms()
            if not self._bell.ring(self._names, places(batch), wait_ms):
                return
            self._under_way.append(Rung(batch, started, patience_s=wait_ms / 1000))
            for _ in batch:
                ready.popleft()

    def acknowledged(self, wait_s: float) -> list[Rung]:
        """Rings that were answered since the last time; waits for one at most so long where there is none.

        Raises:
            ProtocolViolation: the GPU acknowledged something else.
        """
        found = []
        for answer in self._bell.answers(wait_s):
            if answer is None:
                self._missed()
                continue  # and what follows in this turn is not taken either: they stay under way, in order
            rung = self._under_way.popleft()
            self._check(answer, rung.batch[-1])
            rung.ended, self._there = time.perf_counter(), True
            rung.waited_s = min(answer.waited_us / 1e6, rung.ended - rung.started)
            found.append(rung)
        if self._under_way and time.perf_counter() - self._under_way[0].started > self._timeout_s:
            self._bell.give_up()
        return found

    def _missed(self) -> None:
        """Where the first ring was not taken the GPU did not come: why a ring is not taken is said over HTTP only."""
        first = self._under_way[0]
        self.in_vain_s = max(self.in_vain_s, min(first.patience_s, time.perf_counter() - first.started))

    async def said(self, wait_s: float) -> None:
        """Until there may be an answer, at most so many seconds."""
        await self._bell.rings(wait_s)

    def _patience_ms(self) -> int:
        left_s = min(self._timeout_s / 2, self._grant.expires_at - self._clock())
        return max(0, min(int(left_s * 1000), MAX_PORT_WAIT_MS))


def _together(ready: deque[Lying], closing_apart: bool) -> list[Lying]:
    """What goes by one ring; the closing record by itself: the GPU takes long over it, and the slots before it are free until then."""
    batch: list[Lying] = []
    for lying in ready:
        if batch and ((closing_apart and lying.record.closing) or len(batch) == MAX_AT_ONCE):
            break
        batch.append(lying)
    return batch
