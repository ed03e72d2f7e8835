"""The agent's HTTP surface on a real device: ports, MUX, limits; and the agent as a process that leaves nothing behind."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path

import httpx2
import pytest
from gpu_world import World, device_folder, make_world

from gpu_agent.api import GpuUnit, create_app
from gpu_agent.hardware.mux import Mux
from gpu_agent.settings import AgentSettings
from shared.crypto.signing import PartyKey
from shared.service.clock import system_clock, system_entropy
from shared.service.signatures import SignedAuth

BASE = "http://agent.test"


@dataclass
class Agent:
    """An agent in this process, and clients of it."""

    world: World
    client: httpx2.AsyncClient
    platform: SignedAuth

    async def bind(self, port: str | None) -> httpx2.Response:
        return await self.client.put("/v1/platform/gpus/gpu-0/mux", json={"port": port}, auth=self.platform)


@pytest.fixture
async def agent(tmp_path: Path) -> AsyncIterator[Agent]:
    key = PartyKey.generate()
    (tmp_path / "mux.pub").write_bytes(key.public_pem)
    settings = AgentSettings(data_dir=tmp_path / "data", device_dir=device_folder(), platform_key=tmp_path / "mux.pub")
    world = make_world(hbm_bytes=1 << 30)
    app = create_app(settings, BASE, units={"gpu-0": GpuUnit(world.device, world.compute, Mux(()))})
    async with (
        app.router.lifespan_context(app),
        httpx2.AsyncClient(transport=httpx2.ASGITransport(app), base_url=BASE) as client,
    ):
        yield Agent(world, client, SignedAuth(key, system_clock, system_entropy))


async def test_ports_answer_only_while_bound(agent: Agent) -> None:
    path = "/v1/gpus/gpu-0/ports/orchestrator/spdm"
    message = bytes.fromhex("10840000")
    unbound = await agent.client.post(path, content=message)
    assert unbound.status_code == 409
    assert unbound.json()["code"] == "port-not-bound"
    assert (await agent.bind("orchestrator")).json()["port"] == "orchestrator"
    answer = await agent.client.post(path, content=message)
    assert answer.status_code == 200
    assert answer.content[:2] == bytes.fromhex("1004")
    assert (await agent.bind("holder-north")).json()["switches"] == 2
    assert (await agent.client.post(path, content=message)).status_code == 409
