"""The agent's application in this process over a real device, as its clients see it. Test support; knows no test."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx2

from data_holder.bounce import BounceBuffer
from gpu_agent.api import GpuUnit, create_app
from gpu_agent.hardware.device import Device
from gpu_agent.hardware.mux import Mux
from gpu_agent.settings import AgentSettings
from shared.crypto.signing import PartyKey
from shared.service.clock import system_clock, system_entropy
from shared.service.signatures import SignedAuth
from tests.gpu.gpu_world import World, device_folder

BASE = "http://agent.test"


@dataclass
class Agent:
    """An agent in this process, and clients of it."""

    world: World
    client: httpx2.AsyncClient
    platform: SignedAuth
    bounce: Path

    async def bind(self, port: str | None) -> httpx2.Response:
        return await self.client.put("/v1/platform/gpus/gpu-0/mux", json={"port": port}, auth=self.platform)


class _Kept:
    """A device that stays powered when an agent ends: another's parent of compute would import PyTorch again, for two seconds."""

    def __init__(self, device: Device) -> None:
        self._device = device

    def __getattr__(self, name: str) -> Any:
        return getattr(self._device, name)

    def close(self) -> None:
        """Not at an agent's end; the fixture that powered it does."""


@asynccontextmanager
async def opened(folder: Path, world: World) -> AsyncIterator[Agent]:
    """An agent whose files are in this folder, over this device."""
    key = PartyKey.generate()
    (folder / "mux.pub").write_bytes(key.public_pem)
    settings = AgentSettings(
        data_dir=folder / "data", device_dir=device_folder(), platform_key=folder / "mux.pub",
        bounce_socket=folder / "agent.sock",
    )  # fmt: skip
    device: Any = _Kept(world.device)
    app = create_app(settings, BASE, units={"gpu-0": GpuUnit(device, world.compute, Mux(()))})
    async with (
        app.router.lifespan_context(app),
        httpx2.AsyncClient(transport=httpx2.ASGITransport(app), base_url=BASE) as client,
    ):
        yield Agent(world, client, SignedAuth(key, system_clock, system_entropy), folder / "agent.sock")


async def lying(agent: Agent, sealed: Sequence[bytes]) -> tuple[BounceBuffer, list[tuple[int, int]]]:
    """A bounce buffer with these records end to end, and their places."""
    buffer, at, places = await asyncio.to_thread(BounceBuffer.ask, agent.bounce, 1 << 20), 0, []
    for record in sealed:
        buffer.memory[at : at + len(record)] = record
        places.append((at, len(record)))
        at += len(record)
    return buffer, places
