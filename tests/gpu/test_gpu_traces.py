"""Whose traces the agent adds to: ports authenticate by their bodies alone, so a trace counts only beside one that was authentic."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import httpx2
import pytest

from shared.names import TravelMode
from shared.service.tracing import Place, Tracing
from shared.wire import gpu
from shared.wire.bounce import Bounced
from shared.wire.codec import encode, encode_all
from shared.wire.stock import ReadMemory
from tests.gpu.agent_world import Agent, lying, opened
from tests.gpu.gpu_world import World, records
from tests.gpu.test_gpu_direct import DIRECT
from tests.gpu.test_gpu_direct import install as left
from tests.gpu.test_gpu_paper import PAPER, Attacker, install

TRACE = {"traceparent": Place.of_visit("v_1").header}
PORTS = "/v1/gpus/gpu-0/ports"


class Collector:
    """In the place of the sender of spans: each request of our trace that would be told of, as (door, status)."""

    def __init__(self) -> None:
        self.told: list[tuple[str, int]] = []

    def request(self, header: str, method: str, route: str, status: int, seconds: float) -> None:
        if header == TRACE["traceparent"]:
            self.told.append((route.rsplit("/", 1)[-1], status))

    def close(self) -> None:
        """Nothing was sent."""


@pytest.fixture
def collector(monkeypatch: pytest.MonkeyPatch) -> Collector:
    made = Collector()
    monkeypatch.setattr(Tracing, "to", lambda *settings: made)
    return made


@pytest.fixture
async def agent(tmp_path: Path, world: World, collector: Collector) -> AsyncIterator[Agent]:
    async with opened(tmp_path, world) as made:
        yield made


async def post(agent: Agent, door: str, body: bytes) -> httpx2.Response:
    return await agent.client.post(f"{PORTS}/{door}", content=body, headers=TRACE)


def frame(agent: Agent, *commands: Any) -> bytes:
    """The orchestrator's next frame."""
    channel = agent.world.channel
    assert channel is not None
    n, ct, bulk = channel.seal(encode_all(list(commands)), [])
    return encode(gpu.CommandFrame(life=agent.world.life, n=n, ct=ct, bulk=bulk))


def altered(body: bytes) -> bytes:
    return body[:-1] + bytes([body[-1] ^ 1])


async def test_a_command_frame_brings_its_trace_once_it_opened(agent: Agent, collector: Collector) -> None:
    agent.world.set_up()
    await agent.bind("orchestrator")
    asked = frame(agent, gpu.Status())
    for body in (b"\xa0", altered(asked)):
        assert (await post(agent, "orchestrator/commands", body)).status_code >= 400
    assert (await post(agent, "orchestrator/spdm", bytes.fromhex("10840000"))).status_code == 200
    assert collector.told == [], "an SPDM version request is anybody's"
    assert (await post(agent, "orchestrator/commands", asked)).status_code == 200
    assert collector.told == [("commands", 200)]


async def test_stock_firmwares_frame_does_too(agent: Agent, collector: Collector) -> None:
    agent.world.set_up(**PAPER)
    holder = Attacker(install(agent.world, mode=TravelMode.PAPER))
    await agent.bind("holder-north")
    address = holder.holder.grant.address
    assert address is not None
    asked = holder.frame(ReadMemory(address=address, length=16))
    assert (await post(agent, "holder-north/commands", altered(asked))).status_code >= 400
    assert collector.told == []
    assert (await post(agent, "holder-north/commands", asked)).status_code == 200
    assert collector.told == [("commands", 200)]


async def test_copy_records_bring_it_however_they_come(agent: Agent, collector: Collector) -> None:
    agent.world.set_up()
    sealed = agent.world.install(32).seal(records(32))
    nobodys = agent.world.install(32, region=1).seal(records(32))
    buffer, places = await lying(agent, [*sealed, altered(nobodys[0])])
    *sound, forged = places
    await agent.bind("holder-north")

    def named(*those: tuple[int, int]) -> bytes:
        return encode(Bounced(buffer=buffer.name, number=7, places=list(those)))

    for door, body in (
        ("copy", altered(nobodys[0])),
        ("bounce", named(forged)),
        ("bounce", named(sound[0], forged)),
    ):
        assert (await post(agent, f"holder-north/{door}", body)).status_code >= 400
    assert collector.told == []
    assert (await post(agent, "holder-north/copy", sealed[0])).status_code == 200
    assert (await post(agent, "holder-north/bounce", named(*sound[:2]))).status_code == 200
    assert collector.told == [("copy", 200), ("bounce", 200)]
    buffer.close()


async def test_what_is_only_staged_brings_none(agent: Agent, collector: Collector) -> None:
    """Nobody has opened it yet: staging takes anybody's bytes for a grant."""
    agent.world.set_up(**DIRECT)
    sealed = left(agent.world).seal(records(32))
    for body in (sealed[0], altered(sealed[1])):
        assert (await post(agent, "holder-north/staging", body)).status_code == 200
    assert (await agent.client.get("/v1/gpus", headers=TRACE)).status_code == 200
    assert collector.told == []
