"""What the agent reads of a switch before it knows who signed it."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

from tests.gpu.agent_world import opened
from tests.gpu.gpu_world import World


async def test_a_switch_is_no_long_document(tmp_path: Path, world: World) -> None:
    """Its body is read before it is known who signed it, so no more of it is than the name of a port could be."""
    path, sent = "/v1/platform/gpus/gpu-0/mux", list[int]()

    async def long() -> AsyncIterator[bytes]:
        for _ in range(1024):
            sent.append(1)
            yield b"[]," * 1024

    async with opened(tmp_path, world) as agent:
        answer = await agent.client.put(path, content=long(), headers={"content-type": "application/json"})
    assert (answer.status_code, answer.json()["code"]) == (413, "body-too-large")
    assert len(sent) < 10
