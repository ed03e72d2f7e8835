"""A visit through a bounce buffer on the agent of a real device: its places named over HTTP, and by doorbell."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from shared.wire.bounce import BellAck, Bounced, pack_names
from shared.wire.codec import decode, encode
from shared.wire.copy import CopyAck
from tests.gpu.agent_world import Agent, lying, opened
from tests.gpu.gpu_world import RECORD_BYTES, World, records


@pytest.fixture
async def agent(tmp_path: Path, world: World) -> AsyncIterator[Agent]:
    async with opened(tmp_path, world) as made:
        yield made


async def test_a_whole_visit_lies_in_a_bounce_buffer(agent: Agent) -> None:
    """In whichever pieces its places are named, and named again."""
    agent.world.set_up()
    sealed = agent.world.install(32).seal(records(32))
    buffer, places = await lying(agent, sealed)

    async def post(*named: tuple[int, int], name: str = buffer.name, number: int = 7) -> tuple[int, str]:
        body = encode(Bounced(buffer=name, number=number, places=list(named)))
        answer = await agent.client.post("/v1/gpus/gpu-0/ports/holder-north/bounce", content=body)
        if answer.status_code >= 400:
            return answer.status_code, answer.json()["code"]
        ack = decode(CopyAck, answer.content)
        return ack.index, f"{ack.received} {ack.published}"

    assert await post(*places) == (409, "port-not-bound")
    await agent.bind("holder-north")
    assert await post(*places, name="00" * 16) == (404, "unknown-bounce-buffer")
    assert await post((1 << 20, 10)) == (400, "outside-bounce-buffer")
    assert (await post(*places[:2]))[0] == 1
    buffer.memory[:10] = bytes(10)  # the first record's place has another use by now
    late = await post(places[0], number=6)
    assert late == (409, "late-bounce-request"), "it is refused before a byte is read, and the grant lives"
    buffer.memory[: places[0][1]] = sealed[0]
    for number in (8, 9):  # an answer that was lost: the same places again change nothing
        assert await post(*places, number=number) == (len(places) - 1, f"{32 * RECORD_BYTES} True")
    buffer.close()


async def test_a_whole_visit_comes_by_doorbell(agent: Agent) -> None:
    """Everything rung at once; where the port is not bound nothing is taken, and the GPU refuses nothing that came in vain."""
    agent.world.set_up()
    buffer, places = await lying(agent, agent.world.install(32).seal(records(32)))
    with buffer.bell() as bell:

        async def ring(port: str = "holder-north", gpu: str = "gpu-0") -> list[BellAck | None]:
            bell.again()
            assert all(bell.ring(pack_names(gpu, port), [place]) for place in places)
            said: list[BellAck | None] = []
            while not bell.silent:
                said += await asyncio.to_thread(bell.answers, 0.05)
            return said

        nothing = [None] * len(places)
        assert await ring() == nothing
        assert await ring(port="orchestrator") == await ring(port="../x") == await ring(gpu="gpu-9") == nothing
        await agent.bind("holder-north")
        for _ in range(2):  # rung again it changes nothing
            acks = [ack for ack in await ring() if ack is not None]
            assert [ack.index for ack in acks] == list(range(len(places)))
            assert (acks[-1].received, acks[-1].published) == (32 * RECORD_BYTES, True)
    assert buffer.alive
    buffer.close()


async def test_a_ring_may_wait_for_the_gpu(agent: Agent) -> None:
    agent.world.set_up()
    buffer, places = await lying(agent, agent.world.install(32).seal(records(32)))
    with buffer.bell() as bell:
        began = time.monotonic()
        assert bell.ring(pack_names("gpu-0", "holder-north"), places, 10_000)
        assert await asyncio.to_thread(bell.answers, 0.05) == []
        await agent.bind("holder-north")
        [ack] = await asyncio.to_thread(bell.answers, 10.0)
        assert ack is not None
        assert (ack.index, ack.published) == (len(places) - 1, True)
        # From when the agent's thread had read the ring, which may be later than it was rung.
        assert 0 < ack.waited_us / 1e6 <= time.monotonic() - began
        # It does not come there; and where no holder's records are taken nobody waits.
        for gpu, port, wait_ms in (
            ("gpu-0", "holder-south", 1), ("gpu-0", "orchestrator", 10_000), ("gpu-9", "holder-north", 10_000),
        ):  # fmt: skip
            bell.again()
            assert bell.ring(pack_names(gpu, port), places, wait_ms)
            assert await asyncio.to_thread(bell.answers, 5.0) == [None]
    buffer.close()
