"""Acts of those who want to break a law: keys kept, messages replayed, a GPU opened by a stranger, bits flipped. Knows how; no law."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace

import httpx2

from gpu_agent.hardware.hbm import PAGE
from gpu_agent.unit import GpuUnit
from shared.attestation.spdm_requester import SpdmRequester
from shared.claims.visit import Grant
from shared.crypto.aead import SealingChannel
from shared.crypto.visit_key import VisitKey
from shared.errors import GputError
from shared.names import RegionKind
from shared.wire.codec import encode
from shared.wire.copy import CLOSING, DATA, Closing, CopyHeader, copy_context, pack_header
from tests.laws.acts import Stage, point_at
from tests.laws.witness import Tampered
from tests.world.world_service import INCARNATION, Incarnation
from tests.world.world_wire import Call, Deliver

ATTACKER = "attacker"


@contextmanager
def as_attacker() -> Iterator[None]:
    """What is sealed inside the block is sealed by no honest party."""
    token = INCARNATION.set(Incarnation(ATTACKER))
    try:
        yield
    finally:
        INCARNATION.reset(token)


@dataclass(frozen=True)
class OldKey:
    """A holder that forgets no key seals records of its own under that of an earlier offer; the platform brings them to the GPU."""

    which: int

    @property
    def survivable(self) -> bool:
        return True

    async def do(self, stage: Stage) -> None:
        kept, loop = stage.witness.kept, asyncio.get_running_loop()
        if not kept:
            return
        grant, key = kept[self.which % len(kept)]
        with as_attacker():
            records = list(forged(grant, key))
        with suppress(GputError):
            for record in records:  # past the MUX, which is the platform's and decides nothing
                await loop.run_in_executor(stage.unit._threads["copy"], stage.unit.device.copy, grant.port, record)


def forged(grant: Grant, key: VisitKey) -> Iterator[bytes]:
    """A whole visit's records, closing record last, over bytes that nobody planned."""
    channel = SealingChannel(key.key, label="forged", iv_mask=key.iv_mask, channel_counter=key.channel_counter)
    for index in range(grant.chunks):
        length = min(grant.chunk_bytes, grant.length - index * grant.chunk_bytes)
        yield _record(channel, grant, DATA, index, os.urandom(length))
    closing = Closing(
        visit=grant.visit, chunks=grant.chunks, records=grant.records, length=grant.length, salt=bytes(32), commitment="00" * 32,
        dataset_salt=bytes(32), proof=b"",
    )  # fmt: skip
    yield _record(channel, grant, CLOSING, grant.chunks, encode(closing))


def _record(channel: SealingChannel, grant: Grant, kind: int, index: int, plain: bytes) -> bytes:
    header = pack_header(CopyHeader(kind, grant.epoch, grant.region, index, grant.chunks, len(plain)))
    return header + channel.seal(plain, header + copy_context(grant))


@dataclass(frozen=True)
class Replay:
    """The platform sends a recorded message of a kind again, now, to whom it was meant for."""

    place: str
    which: int

    @property
    def survivable(self) -> bool:
        return True

    async def do(self, stage: Stage) -> None:
        point = replace(point_at(self.place, 1), command="")
        recorded = [e.call for e in stage.world.wire.transcript if point.matches(e.call, None)]
        if recorded:
            with suppress(httpx2.TransportError):  # nobody is there just now
                await stage.world[point.server].handle(recorded[self.which % len(recorded)])


@dataclass(frozen=True)
class Stranger:
    """Somebody at the orchestrator's port opens a session of their own without the resume secret: the GPU wipes itself."""

    @property
    def survivable(self) -> bool:
        return True

    async def do(self, stage: Stage) -> None:
        await stranger_opens(stage.unit)


async def stranger_opens(unit: GpuUnit) -> None:
    """A whole handshake of somebody's own at the orchestrator's port."""
    loop = asyncio.get_running_loop()
    with as_attacker(), suppress(GputError):
        requester = SpdmRequester(entropy=os.urandom, signing_key_digest=bytes(32))
        message: bytes | None = requester.start()
        while message is not None:
            answer = await loop.run_in_executor(unit._threads["spdm"], unit.device.spdm, message)
            message = requester.feed(answer)


@dataclass(frozen=True)
class Tamper:
    """One bit of a region changes while the GPU is at a holder for the `nth` time from here on."""

    kind: RegionKind
    nth: int

    @property
    def survivable(self) -> bool:
        return self.kind is not RegionKind.COMMITTED  # with that, a roll-back may have nothing to go back to

    async def do(self, stage: Stage) -> None:
        seen = 0

        async def hook(call: Call, deliver: Deliver) -> httpx2.Response:
            nonlocal seen
            if call.link == ("orchestrator", "platform") and b'"holder-' in call.body:
                seen += 1
                if seen == self.nth:
                    self._flip(stage)
            return await deliver(call)

        stage.world.wire.hooks.append(hook)

    def _flip(self, stage: Stage) -> None:
        for region in stage.unit.device._state.regions.all(self.kind):
            at = region.address + region.length // 3
            stage.unit.device._hbm.view(at, 1)[0] ^= 1
            stage.witness.note(Tampered(at // PAGE * PAGE))
