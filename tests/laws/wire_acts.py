"""Acts on messages: disturb one, or do another act just when it passes. Knows how; no law."""

from __future__ import annotations

import asyncio
import contextvars
import random
from contextlib import suppress
from dataclasses import dataclass
from typing import Literal

import httpx2

from tests.laws.acts import Act, Stage, point_at
from tests.world.world_faults import Moment, Point
from tests.world.world_wire import Call, Deliver, cut, lose_answer

How = Literal["cut", "lose", "repeat", "delay", "late", "replay", "corrupt", "corrupt_answer"]
DELAY_S, HELD_S = 0.2, 2.0


@dataclass(frozen=True)
class Disturb:
    """The `nth` message of a kind from here on is cut, loses its answer, comes twice, later, changed, or after an older one again."""

    place: str
    nth: int
    how: How
    seed: int = 0

    @property
    def survivable(self) -> bool:
        # A handshake or a proof that arrives changed cannot be told from a refusal, which ends a session.
        return not self.how.startswith("corrupt") or self.place not in (
            "spdm",
            "quote",
            "channel",
            "approval",
            "mux",
            "switch",
        )

    def point(self) -> Point:
        """Where it is done; its number is counted from the moment it is armed."""
        return point_at(self.place, self.nth)

    async def do(self, stage: Stage) -> None:
        point, seen, waiting = self.point(), 0, list[Call]()

        async def hook(call: Call, deliver: Deliver) -> httpx2.Response:
            nonlocal seen
            if not point.matches(call, stage.witness):
                return await deliver(call)
            seen += 1
            if seen == self.nth:
                if self.how == "late":
                    waiting.append(call)
                    raise httpx2.ReadError("held back")
                return await self._disturbed(stage, call, deliver)
            answer = await deliver(call)
            while waiting:  # overtaken by this one
                with suppress(httpx2.TransportError):
                    await deliver(waiting.pop())
            return answer

        stage.world.wire.hooks.append(hook)

    async def _disturbed(self, stage: Stage, call: Call, deliver: Deliver) -> httpx2.Response:
        match self.how:
            case "cut":
                return cut(call)
            case "lose":
                return await lose_answer(call, deliver)
            case "repeat":
                await deliver(call)
            case "delay":
                await asyncio.sleep(DELAY_S)
            case "replay":
                older = [e.call for e in stage.world.wire.transcript if e.call.link == call.link and e.call.body]
                if older:
                    await deliver(older[self.seed % len(older)])
            case "corrupt":
                return await deliver(call.with_body(self._flipped(call.body)))
            case "corrupt_answer":
                answer = await deliver(call)
                body = self._flipped(answer.content)
                return httpx2.Response(answer.status_code, headers=answer.headers, content=body)
        return await deliver(call)

    def _flipped(self, body: bytes) -> bytes:
        if not body:
            return body
        draw = random.Random(self.seed)  # a repeatable test, not a secret
        at = draw.randrange(len(body))
        return body[:at] + bytes([body[at] ^ 1 << draw.randrange(8)]) + body[at + 1 :]


@dataclass(frozen=True)
class At:
    """Another act, done at the `nth` message of a kind, just before it reaches its peer or before its answer goes back."""

    place: str
    nth: int
    moment: Moment
    act: Act

    @property
    def survivable(self) -> bool:
        return self.act.survivable

    async def do(self, stage: Stage) -> None:
        point, seen = point_at(self.place, self.nth, self.moment), 0
        outside = contextvars.copy_context()  # of every service, so that none of them takes the act down with itself

        async def hook(call: Call, deliver: Deliver) -> httpx2.Response:
            nonlocal seen
            here = point.matches(call, stage.witness)
            seen += here
            if not here or seen != self.nth:
                return await deliver(call)
            answer = await deliver(call) if self.moment == "after" else None
            task = asyncio.get_running_loop().create_task(self.act.do(stage), context=outside.copy())
            stage.doing.append(task)
            await asyncio.wait([task], timeout=HELD_S)
            return await deliver(call) if answer is None else answer

        stage.world.wire.hooks.append(hook)
