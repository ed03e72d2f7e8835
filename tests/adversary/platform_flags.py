"""Completion flags that a hostile platform forges: records taken, commands done, memory zeroed. Knows no result."""

from __future__ import annotations

from unittest.mock import patch

import httpx2

from gpu_agent.hardware.hbm import HBM
from shared.errors import BadRequest
from shared.names import RegionKind
from shared.wire import gpu
from shared.wire.base import Wire
from shared.wire.codec import decode, encode
from shared.wire.copy import CopyAck, StagedAck, parse_record
from shared.wire.gpu import CommandFrame
from tests.adversary.platform import COMMANDS, HostilePlatform, record
from tests.world.world_wire import Call, Deliver, Exchange

TIMES = 3
CBOR = {"content-type": "application/cbor"}


def forge_copies(platform: HostilePlatform) -> None:
    """Some records never arrive, and their holder is told that they were taken; the closing one's, that all was published."""

    async def hook(call: Call, deliver: Deliver) -> httpx2.Response:
        if not record(call) or platform.done >= TIMES or platform.draw.random() < 0.6:
            return await deliver(call)
        platform.done += 1
        return taken(call)

    platform.hook(hook)


def taken(call: Call) -> httpx2.Response:
    """What the GPU would answer if it had taken the record."""
    header, _, _ = parse_record(call.body)
    ack: Wire = (
        StagedAck(index=header.index, received=header.length) if call.path.endswith("/staging")
        else CopyAck(index=header.index, received=header.length, published=header.index == header.total)
    )  # fmt: skip
    return httpx2.Response(200, content=encode(ack), headers=CBOR)


def forge_commands(platform: HostilePlatform) -> None:
    """Once the records are trained on, a batch with a scrub never arrives: its answer is that to the scrub before, under its number. And
    a later one comes back with an answer that nobody made."""
    before: list[Exchange] = []

    async def hook(call: Call, deliver: Deliver) -> httpx2.Response:
        scrub = call.path.endswith(COMMANDS) and any(isinstance(c, gpu.Scrub) for c in platform.recorder.latest_batch)
        if not scrub or platform.done >= TIMES:
            return await deliver(call)
        if before:
            platform.done += 1
            old = decode(CommandFrame, before.pop().answer)
            forged = {"n": _number(call)} | ({} if platform.done == 1 else {"ct": platform.draw.randbytes(len(old.ct))})
            return httpx2.Response(200, content=encode(old.model_copy(update=forged)), headers=CBOR)
        answer = await deliver(call)
        before.append(Exchange(call, answer.status_code, answer.content))
        return answer

    platform.hook(hook)


def _number(call: Call) -> int:
    try:
        return decode(CommandFrame, call.body).n
    except BadRequest:
        raise AssertionError("what comes on the orchestrator's port is a frame") from None


def forge_zeroing(platform: HostilePlatform) -> None:
    """The engine that zeroes memory says that it is done and has touched nothing, the first time that a used region is scrubbed."""
    honest, state = HBM._clear, platform.gpu.device._state

    def clear(hbm: HBM, address: int, length: int) -> None:
        buffers = {region.address for region in state.regions.all(RegionKind.DATASET)}
        if not platform.done and address in buffers and any(hbm.view(address, length)):
            platform.done += 1
            return
        honest(hbm, address, length)

    platform.undo.enter_context(patch.object(HBM, "_clear", clear))
