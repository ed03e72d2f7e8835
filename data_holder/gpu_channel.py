"""Provisioning: a visit's sealed records onto the GPU's port or into its staging, the same bytes until acknowledged. Knows no orchestrator.

Chunks are sealed ahead (bounded) while the GPU is still on its way and while earlier ones travel. A record is sealed once; on a lost
connection the very same buffer is sent again, and the GPU acknowledges a byte-identical repeat without effect (laws L4, L5). By a doorbell
several batches are under way; whatever then did not arrive is sent one batch after another, as it would have been. Where the bell broke,
nothing more goes by its buffer.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass

from data_holder.batches import Batch
from data_holder.bounce import BounceLink
from data_holder.carriers import Carrier, HttpCarrier, LinkName, carrier_for
from data_holder.links import GpuLink
from data_holder.ringing import Rung
from data_holder.sealed_ahead import SealedAhead
from data_holder.sealing import RecordSealer
from data_holder.slots import Brought, brought
from shared.claims.visit import Grant
from shared.errors import Conflict, NotFound, Refused, Unavailable
from shared.service.clock import Clock

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
    """Sends one visit. `attached()` is called once, at the GPU's first acknowledgement: of a request's records, or of a ring's."""

    def __init__(
        self, link: GpuLink, clock: Clock, *, prepare_bytes: int, bounce: BounceLink, sleep: Sleep = asyncio.sleep,
        attached: Callable[[], None] = lambda: None,
    ) -> None:  # fmt: skip
        self._link, self._clock, self._sleep, self._attached, self._bounce = link, clock, sleep, attached, bounce
        self._prepare_bytes = prepare_bytes
        self._sent, self._repeats = 0, False
        self._write_s = self._heard = self._awaited_s = 0.0
        self._first_ack: float | None = None

    async def provision(self, grant: Grant, gpu: str, sealer: RecordSealer) -> Provisioned:
        """Send every record and the closing one; the key is erased whatever happens.

        Raises:
            Refused: `lease-expired`, or the GPU answered something that is no acknowledgement of what was sent.
            Conflict, ProtocolViolation…: the GPU's own refusal (`copy-refused`). UnfitData: the file changed.
        """
        started = time.perf_counter()
        try:
            with self._bounce.lend() as buffer, carrier_for(grant, self._link, buffer) as carrier:
                link = await self._send(grant, gpu, sealer, carrier)
            commitment = sealer.commitment
        finally:
            before = time.perf_counter()
            sealer.erase()
            erased_s = time.perf_counter() - before
        # A holder that seals ahead is at the port while another's visit trains; that is no part of its own.
        grabbed = max(0.0, (self._first_ack or started) - started - self._awaited_s)
        written_s = self._write_s + sealer.seal_s
        return Provisioned(commitment, link, self._sent, grabbed, sealer.read_s, written_s, erased_s)

    async def _send(self, grant: Grant, gpu: str, sealer: RecordSealer, carrier: Carrier) -> LinkName:
        """What brought the last record: an agent that began anew knows no buffer, and the rest goes over HTTP."""
        count = min(sealer.total + 1, max(2, self._prepare_bytes // sealer.buffer_bytes))
        slots = carrier.slots(count, sealer.buffer_bytes)
        if not slots:
            carrier = HttpCarrier(self._link)
            slots = carrier.slots(count, sealer.buffer_bytes)
        self._grant, self._gpu, self._carrier = grant, gpu, carrier
        self._ahead = SealedAhead(sealer, slots)
        # Where a request takes what lies sealed: half of the slots at once, so that the others fill meanwhile.
        half = carrier.light and not self._ahead.inline
        self._most = min(carrier.limit, max(1, len(slots) // 2) if half else len(slots))
        async with self._ahead.sealing():
            await self._all()
        return self._carrier.name

    async def _all(self) -> None:
        """By the doorbell, where there is one; what it does not bring batch by batch."""
        while True:
            timeout_s = min(self._grant.expires_at - self._clock(), CALL_TIMEOUT_S)
            ringing = self._carrier.ringing(self._grant, self._gpu, self._clock, timeout_s)
            if ringing is not None:
                await self._ahead.rung(ringing, self._rung)
                self._absent(ringing.in_vain_s)
                if ringing.broken:
                    # Its places stay as they are for rings that are looked at late, so none can be named for other records.
                    self._go_over_http()
            batch = await self._ahead.batch(
                self._at_once(), ready=self._carrier.light, repeats=self._repeats, heard=self._require_lease
            )
            if batch is None:
                return
            await self._deliver(batch)
            self._ahead.give_back(batch.whole)

    def _at_once(self) -> int:
        """Records of the next request, at most."""
        return self._most

    def _rung(self, acknowledged: Sequence[Rung]) -> None:
        for one in acknowledged:
            self._sent += one.brought.length
            self._link.rung(one.brought.length)
            self._absent(one.waited_s)
            self._acknowledged(one.brought, one.started + one.waited_s, one.ended)

    def _go_over_http(self) -> None:
        """With all that is left, as bodies. What went by the buffer may have arrived, with the closing record."""
        self._carrier, self._repeats = HttpCarrier(self._link), True
        self._most = min(self._most, self._carrier.limit)

    def _require_lease(self) -> float:
        """Seconds that are left of it. Raises: Refused `lease-expired`."""
        left = self._grant.expires_at - self._clock()
        if left <= 0:
            why = f"the lease of visit {self._grant.visit} ended before its data was written"
            raise Refused(why, code="lease-expired")
        return left

    async def _deliver(self, batch: Batch) -> None:
        """The same bytes until the GPU acknowledges them or the lease ends."""
        pause = FIRST_RETRY_S
        while not await self._carried(batch):
            left = self._require_lease()
            await self._sleep(min(pause, left))
            pause = min(pause * 2, LAST_RETRY_S)

    async def _carried(self, batch: Batch) -> bool:
        """Whether the GPU acknowledged them; else they are brought again. Raises: Refused `lease-expired`; the GPU's refusal."""
        left, before, waits = self._require_lease(), batch.sent, batch.waited_s
        started = time.perf_counter()
        try:
            waited_s = await self._carrier.carry(self._grant, self._gpu, batch, timeout_s=min(left, CALL_TIMEOUT_S))
        except Unavailable:  # nobody knows whether they arrived: the same bytes again
            return batch.count > 1 and await self._singly(batch)
        except Conflict as error:
            if error.code != "port-not-bound":
                raise
            self._absent(time.perf_counter() - started)
            return False
        except NotFound as error:
            if error.code != "unknown-bounce-buffer":
                raise
            self._go_over_http()
            return await self._singly(batch)  # it may have more than a request
        finally:
            self._sent += batch.sent - before
        ended = time.perf_counter()
        # Until the GPU was there nothing was written; how long that was only the agent knows.
        waited_s = min(waited_s, ended - started)
        self._absent(waited_s)
        self._acknowledged(brought(batch.whole), started + waited_s, ended)
        # Nor was it while a record was read and sealed, which is counted by itself.
        self._write_s -= min(batch.waited_s - waits, ended - started - waited_s)
        return True

    async def _singly(self, batch: Batch) -> bool:
        """A link that breaks again brings none of many, and of single ones at least the first."""
        await self._sleep(FIRST_RETRY_S)
        async for one in batch.singly():
            await self._deliver(one)
        return True

    def _absent(self, seconds: float) -> None:
        """So long the GPU was not at the port, before its first acknowledgement: a GPU that is called back later is no matter here."""
        if self._first_ack is None:
            self._awaited_s += seconds

    def _acknowledged(self, these: Brought, started: float, ended: float) -> None:
        # Batches that were under way together took their time together.
        self._write_s += ended - max(started, self._heard)
        self._heard = ended
        self._link.delivered(these.plain, these.proof)
        if self._first_ack is None:
            self._first_ack = started
            self._attached()
