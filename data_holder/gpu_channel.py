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
from data_holder.slots import Lying, bytes_of
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
    """Sends one visit. `attached()` is called once, at the GPU's first acknowledgement."""

    def __init__(
        self, link: GpuLink, clock: Clock, *, prepare_bytes: int, bounce: BounceLink, sleep: Sleep = asyncio.sleep,
        attached: Callable[[], None] = lambda: None,
    ) -> None:  # fmt: skip
        self._link, self._clock, self._sleep, self._attached, self._bounce = link, clock, sleep, attached, bounce
        self._prepare_bytes = prepare_bytes
        self._sent = 0
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
            batch = await self._ahead.batch(self._at_once(), ready=self._carrier.light)
            if batch is None:
                return
            await self._carried(batch)
            self._ahead.give_back(batch.whole)

    def _at_once(self) -> int:
        """Records of the next request, at most."""
        return self._most

    def _rung(self, acknowledged: Sequence[Rung]) -> None:
        for one in acknowledged:
            length = bytes_of(one.batch)
            self._sent += length
            self._link.rung(length)
            self._absent(one.waited_s)
            self._acknowledged(one.batch, one.started + one.waited_s, one.ended)

    async def _carried(self, batch: Batch) -> None:
        try:
            await self._deliver(batch)
        except NotFound as error:
            if error.code != "unknown-bounce-buffer":
                raise
            self._go_over_http()
            await self._singly(batch)  # it may have more than a request

    def _go_over_http(self) -> None:
        """With all that is left, as bodies."""
        self._carrier = HttpCarrier(self._link)
        self._most = min(self._most, self._carrier.limit)

    async def _singly(self, batch: Batch) -> None:
        for one in batch.singly():
            await self._deliver(one)

    async def _deliver(self, batch: Batch) -> None:
        """The same bytes until the GPU acknowledges them or the lease ends."""
        grant, pause = self._grant, FIRST_RETRY_S
        while True:
            left = grant.expires_at - self._clock()
            if left <= 0:
                raise Refused(
                    f"the lease of visit {grant.visit} ended before its data was written", code="lease-expired"
                )
            started = time.perf_counter()
            try:
                self._sent += batch.length
                waited_s = await self._carrier.carry(grant, self._gpu, batch, timeout_s=min(left, CALL_TIMEOUT_S))
            except Unavailable:  # nobody knows whether they arrived: the same bytes again
                if batch.count > 1:
                    # A link that breaks again brings none of many, and of single ones at least the first.
                    await self._sleep(min(pause, left))
                    await self._singly(batch)
                    return
            except Conflict as error:
                if error.code != "port-not-bound":
                    raise
                self._absent(time.perf_counter() - started)
            else:
                # Until the GPU was there nothing was written; how long that was only the agent knows.
                waited_s = min(waited_s, time.perf_counter() - started)
                self._absent(waited_s)
                self._acknowledged(batch.whole, started + waited_s, time.perf_counter())
                return
            await self._sleep(min(pause, left))
            pause = min(pause * 2, LAST_RETRY_S)

    def _absent(self, seconds: float) -> None:
        """So long the GPU was not at the port, before its first acknowledgement: a GPU that is called back later is no matter here."""
        if self._first_ack is None:
            self._awaited_s += seconds

    def _acknowledged(self, batch: Sequence[Lying], started: float, ended: float) -> None:
        # Batches that were under way together took their time together.
        self._write_s += ended - max(started, self._heard)
        self._heard = ended
        for lying in batch:
            self._link.delivered(lying.record.plaintext_bytes, lying.record.proof_bytes)
        if self._first_ack is None:
            self._first_ack = started
            self._attached()
