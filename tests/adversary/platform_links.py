"""What a hostile platform does on the links to the GPU: sends messages back to their senders, and cuts records short. Knows no result."""

from __future__ import annotations

from collections import Counter

import httpx2

from shared.errors import BadRequest
from shared.wire.codec import decode, encode
from shared.wire.gpu import CommandFrame
from tests.adversary.platform import COMMANDS, HostilePlatform, record
from tests.world.world_wire import Call, Deliver

TIMES = 6
OCTETS = {"content-type": "application/octet-stream"}


def reflect(platform: HostilePlatform) -> None:
    """What the GPU answers comes to it as a request, as it is and under the next number; and one frame and one record come back to their
    sender as their own answers."""
    own = {True: platform.draw.randrange(2, 6), False: platform.draw.randrange(10, 20)}
    seen: Counter[bool] = Counter()

    async def hook(call: Call, deliver: Deliver) -> httpx2.Response:
        if not record(call) and not call.path.endswith(COMMANDS):
            return await deliver(call)
        kind = record(call)
        seen[kind] += 1
        if seen[kind] == own[kind]:
            platform.done += 1
            return httpx2.Response(200, content=call.body, headers=OCTETS)
        answer = await deliver(call)
        if answer.is_success and seen[kind] <= TIMES:
            for body in (answer.content, _next(answer.content)):
                await platform.say(call.with_body(body), deliver)
        return answer

    platform.hook(hook)


def _next(message: bytes) -> bytes:
    """The message, under the number that is due next where it has one."""
    try:
        frame = decode(CommandFrame, message)
    except BadRequest:
        return message
    return encode(frame.model_copy(update={"n": frame.n + 1}))


def truncate(platform: HostilePlatform) -> None:
    """Some records arrive without their end, and no answer goes back: of every few, one that was drawn."""

    async def hook(call: Call, deliver: Deliver) -> httpx2.Response:
        if not record(call) or platform.done >= TIMES or platform.draw.random() < 0.6:
            return await deliver(call)
        await platform.say(call.with_body(call.body[: platform.draw.randrange(len(call.body))]), deliver)
        raise httpx2.ReadError("nothing came back")

    platform.hook(hook)
