"""A wire that drops, repeats, delays and corrupts what it carries: the same model, or a clear stop; never another model, never a leak."""

from __future__ import annotations

import asyncio
import random
from dataclasses import dataclass

import httpx2
import pytest

from tests.world.world import NewWorld
from tests.world.world_material import Material, disguises, leaks
from tests.world.world_recorder import recording
from tests.world.world_recording import Recording
from tests.world.world_wire import Call, Deliver, cut, lose_answer

ACTIONS = ("cut", "lose", "repeat", "delay", "corrupt", "corrupt-answer")
LINKS = {
    "copies": ("holder", "agent", "/copy"),
    "commands": ("orchestrator", "agent", "/commands"),
    "reports": ("holder", "orchestrator", "/report"),
    "channels": ("holder", "orchestrator", "/channels"),
    "switches": ("orchestrator", "platform", "/mux"),
}


@dataclass
class Hostile:
    """Acts on the calls of one kind, by a seeded choice, at most `budget` times."""

    kind: str
    seed: int
    budget: int = 4

    def __post_init__(self) -> None:
        self.draw = random.Random(self.seed)  # a repeatable test, not a secret
        self.done: list[str] = []

    def matches(self, call: Call) -> bool:
        client, server, part = LINKS[self.kind]
        return call.client.startswith(client) and call.server == server and part in call.path

    async def hook(self, call: Call, deliver: Deliver) -> httpx2.Response:
        if not self.matches(call) or len(self.done) >= self.budget:
            return await deliver(call)
        spared = self.draw.random() > 0.4
        if spared and self.done:  # the first is never spared: some links carry three calls in a whole session
            return await deliver(call)
        action = self.draw.choice(ACTIONS)
        self.done.append(action)
        if action == "cut":
            return cut(call)
        if action == "lose":
            return await lose_answer(call, deliver)
        if action == "repeat":
            await deliver(call)
            return await deliver(call)
        if action == "delay":
            await asyncio.sleep(0.2)
            return await deliver(call)
        if action == "corrupt":
            return await deliver(call.with_body(self._flipped(call.body)))
        answer = await deliver(call)
        return httpx2.Response(answer.status_code, headers=answer.headers, content=self._flipped(answer.content))

    def _flipped(self, body: bytes) -> bytes:
        if not body:
            return body
        at = self.draw.randrange(len(body))
        return body[:at] + bytes([body[at] ^ 1 << self.draw.randrange(8)]) + body[at + 1 :]


def _cases() -> list[object]:
    cases = []
    for kind in LINKS:
        for seed in range(6):
            quick = (kind in ("copies", "commands") and seed < 2) or seed == 0
            cases.append(pytest.param(kind, seed, id=f"{kind}-{seed}", marks=() if quick else pytest.mark.slow))
    return cases


@pytest.mark.parametrize(("kind", "seed"), _cases())
async def test_hostile_wire(kind: str, seed: int, new_world: NewWorld, recorded: Recording, material: Material) -> None:
    hostile = Hostile(kind, seed)
    with recording() as recorder:
        async with new_world() as world:
            world.wire.hooks.append(hostile.hook)
            session = await world.submit(lease_s=1)
            view = await world.finish(session, 60)
            places = [*world.wire.bodies(), *world.files()]
            visits = await world.visits(session)
    assert hostile.done, "the wire was not hostile at all"
    if view["phase"] == "COMPLETED":
        assert {v["outcome"] for v in visits} <= {"closed", "recalled", "quarantined"}, hostile.done
        assert view["model"]["digest"] == recorded.view["model"]["digest"], hostile.done
    else:
        assert view["model"] is None
        assert view["failure"]["code"] != "internal", view["failure"]
    for canary in material.canaries.values():
        assert leaks(places, disguises(canary)) == []
    assert recorder.reused == [], hostile.done


async def test_everything_recorded_and_played_back_changes_nothing(new_world: NewWorld, recorded: Recording) -> None:
    """Replay of a whole earlier session's copies, reports and commands into a later one of the same parties."""
    kinds = ("/copy", "/report", "/commands", "/channels")
    old = [e.call for e in recorded.wire.transcript if e.call.path.endswith(kinds) and e.call.method == "POST"][:60]
    accepted: list[str] = []
    async with new_world() as world:

        async def replay(call: Call, deliver: Deliver) -> httpx2.Response:
            answer = await deliver(call)
            if old and call.path.endswith(kinds):
                again = await world[old[0].server].handle(old[0])
                if again.status_code < 300:
                    accepted.append(old[0].path)
                old.pop(0)
            return answer

        world.wire.hooks.append(replay)
        session = await world.submit()
        view = await world.completed(session)
    assert accepted == []
    assert view["model"]["digest"] == recorded.view["model"]["digest"]
