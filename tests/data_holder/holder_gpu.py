"""A GPU's port as a holder sees it: real records opened with the visit's key."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import httpx2
from blake3 import blake3

from gpu_agent.bounce import BounceBuffers
from shared.crypto.aead import OpeningChannel
from shared.crypto.visit_key import VisitKey
from shared.errors import Conflict, NotFound
from shared.protocol.membership import check_membership
from shared.wire.bounce import Bounced, Rung
from shared.wire.codec import decode, encode
from shared.wire.copy import (
    CLOSING,
    HEADER_BYTES,
    PROOF,
    Closing,
    Copied,
    CopyAck,
    copy_context,
    parse_record,
    record_length,
)
from shared.wire.visit import (
    OfferDocument,
)
from tests.data_holder.holder_world import problem


@dataclass
class Gpu(httpx2.AsyncBaseTransport):
    """The GPU's copy port with one grant. `away_s`: after so long it comes, once, to who waits.

    Faults: `unbound` answers first, `cut_before`/`cut_after` record indexes once each; by the doorbell `miss_before`/`miss_after`: a record
    that is not taken, or not acknowledged, once each.
    """

    unbound: int = 0
    cut_before: set[int] = field(default_factory=set)
    cut_after: set[int] = field(default_factory=set)
    transcript: list[bytes] = field(default_factory=list)
    batches: list[int] = field(default_factory=list)
    rings: list[int] = field(default_factory=list)
    miss_before: set[int] = field(default_factory=set)
    miss_after: set[int] = field(default_factory=set)
    calls: int = 0
    away_s: float = 0.0
    published: bool = False
    refuse_with: str | None = None
    hook: Callable[[int], Any] | None = None
    buffers: BounceBuffers | None = None

    def install(self, document: OfferDocument, key: VisitKey) -> None:
        self.grant, self.loop = document.grant, asyncio.get_running_loop()
        self.opening = OpeningChannel(key.key, label="test", iv_mask=key.iv_mask, channel_counter=key.channel_counter)
        self.plain, self.proof, self.published = bytearray(), bytearray(), False
        self.accepted: dict[int, bytes] = {}

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        body = await request.aread()
        self.calls += 1
        door = request.url.path.removeprefix(f"/v1/gpus/gpu-0/ports/{self.grant.port}/")
        if door == "bounce" and self.buffers is not None:
            return self._bounced(decode(Bounced, body), self.buffers)
        assert door == "copy"
        if self.unbound:
            self.unbound -= 1
            return problem(409, "Conflict", "port-not-bound")
        if self.refuse_with:
            return problem(409, "Protocol violation", self.refuse_with)
        waited = {}
        if self.away_s and int(request.url.params.get("wait_ms", "0")) >= self.away_s * 1000:
            await asyncio.sleep(self.away_s)
            waited, self.away_s = {"server-timing": f"port;dur={self.away_s * 1000}"}, 0.0
        for record in split(body):
            ack = await self._copied(record)
        return httpx2.Response(200, content=acknowledgement(ack), headers=waited)

    async def _copied(self, record: bytes) -> Copied:
        header, _, _ = parse_record(record)
        if header.index in self.cut_before:
            self.cut_before.discard(header.index)
            raise httpx2.WriteError("cut")
        self.transcript.append(record)
        if self.hook is not None:
            await self.hook(header.index)
        ack = self._take(record)
        if header.index in self.cut_after:
            self.cut_after.discard(header.index)
            raise httpx2.ReadError("cut")
        return ack

    def _bounced(self, named: Bounced, buffers: BounceBuffers) -> httpx2.Response:
        self.batches.append(len(named.places))
        for offset, length in named.places:
            try:
                buffers.named(named.buffer, named.number)
                body = bytes(buffers.record(named.buffer, offset, length))
            except NotFound as error:
                return problem(404, "Not found", error.code)
            self.transcript.append(body)
            ack = self._take(body)
        return httpx2.Response(200, content=acknowledgement(ack))

    def arrives(self, rung: Rung) -> None:
        """As `gpu_agent.doorbell.Copies`."""
        if self.away_s and rung.wait_ms >= self.away_s * 1000:
            time.sleep(self.away_s)
            self.away_s = 0.0

    def copy(self, name: str, rung: Rung) -> Copied:
        """What a doorbell's places come to."""
        assert self.buffers is not None
        assert (rung.gpu, rung.port) == ("gpu-0", self.grant.port)
        if self.unbound or self.away_s:
            self.unbound = max(0, self.unbound - 1)
            raise Conflict("not now", code="port-not-bound")
        self.rings.append(len(rung.places))
        for offset, length in rung.places:
            body = bytes(self.buffers.record(name, offset, length))
            header, _, _ = parse_record(body)
            if header.index in self.miss_before:
                self.miss_before.discard(header.index)
                raise Conflict("not now", code="port-not-bound")
            self.transcript.append(body)
            if self.hook is not None:
                asyncio.run_coroutine_threadsafe(self.hook(header.index), self.loop).result()
            if header.epoch != self.grant.epoch:  # the visit was stopped meanwhile
                raise Conflict("no grant", code="no-grant")
            ack = self._take(body)
            if header.index in self.miss_after:
                self.miss_after.discard(header.index)
                raise Conflict("not now", code="port-not-bound")
        return ack

    def _take(self, body: bytes) -> Copied:
        header, raw, sealed = parse_record(body)
        known = self.accepted.get(header.index)
        if known is not None:
            assert known == bytes(body), "another record at a used counter"
        else:
            plain = self.opening.open(sealed, raw + copy_context(self.grant))
            self.accepted[header.index] = bytes(body)
            if header.kind == CLOSING:
                self._close(decode(Closing, plain))
            elif header.kind == PROOF:
                self.proof += plain
            else:
                self.plain += plain
        return Copied(header.index, len(self.plain), self.published)

    def _close(self, closing: Closing) -> None:
        assert closing.length == len(self.plain) == self.grant.length
        self.proof += closing.proof
        assert len(self.proof) <= self.grant.proof_budget
        leaves = check_membership(
            memoryview(self.plain), bytes(self.proof), bytes.fromhex(self.grant.dataset_root), salt=closing.dataset_salt,
            cursor=self.grant.cursor, records=self.grant.dataset_records,
        )  # fmt: skip
        assert blake3(b"".join(leaves), key=closing.salt).hexdigest() == closing.commitment
        self.published = True

    def one_ciphertext_per_counter(self) -> None:
        """Law L4 over the whole transcript: one record index, one byte string."""
        seen: dict[tuple[int, int], bytes] = {}
        for body in self.transcript:
            header, _, _ = parse_record(body)
            assert seen.setdefault((header.epoch, header.index), body) == body


def acknowledgement(copied: Copied) -> bytes:
    return encode(CopyAck(index=copied.index, received=copied.received, published=copied.published))


def split(body: bytes) -> list[bytes]:
    """The copy records that lie end to end in a body."""
    found = []
    while body:
        length = record_length(body[:HEADER_BYTES])
        found.append(body[:length])
        body = body[length:]
    return found
