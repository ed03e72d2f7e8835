"""What one holder reports ends nobody's session: a number that no journal could write down is not taken in."""

from __future__ import annotations

import json
import os

import httpx2

from shared.service.signatures import SignedAuth
from tests.world.world import NewWorld, World, url
from tests.world.world_wire import Call, Deliver, Link

ORCH, HOLDER = "orchestrator", "city"
BEYOND = 2**53
LIES = (
    {"bytes_sent": BEYOND}, {"records": BEYOND}, {"length": 10**30}, {"epoch": BEYOND}, {"epoch": -1},
    *({"timers": {name: 1e300}} for name in ("grab_gpu", "import_key", "buffer_read", "gpu_write", "export_key")),
)  # fmt: skip


class Boaster:
    """Reports of each visit what cannot be, under its own signature, before it reports what is. `answers`: to the former."""

    def __init__(self, world: World) -> None:
        self._world, self.answers = world, list[int]()

    async def __call__(self, call: Call, deliver: Deliver) -> httpx2.Response:
        if call.link == (f"holder-{HOLDER}", ORCH) and call.path.endswith("/report"):
            auth = SignedAuth(self._world.key(HOLDER), self._world.clock_of(HOLDER), os.urandom)
            link = Link(self._world.wire, HOLDER, ORCH)
            async with httpx2.AsyncClient(transport=link, base_url=url(ORCH), auth=auth) as client:
                for lie in LIES:
                    said = json.loads(call.body)
                    told = {name: said[name] | more if isinstance(more, dict) else more for name, more in lie.items()}
                    self.answers.append((await client.post(call.path, json=said | told)).status_code)
        return await deliver(call)


async def test_a_number_without_a_form_is_refused_and_the_session_goes_on(new_world: NewWorld) -> None:
    """It was taken, broke the commit that was to write it down, and with it everybody's session."""
    async with new_world(holders=(HOLDER, "harbour")) as world:
        boaster = Boaster(world)
        world.wire.hooks.append(boaster)
        await world.completed(await world.submit(rounds=1))
        assert boaster.answers == [422] * len(LIES)
