"""A person at the command line of a world, and a program beside it: both have event loops of their own. Knows commands by their words."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import httpx2
import pytest

from gput.__main__ import main
from gput.client import AsyncClient
from shared.service.http import Peers
from tests.world.world import World, url
from tests.world.world_wire import Link

ORCH = "orchestrator"


class Hand:
    """Runs commands against a world: in a thread, because a command brings an event loop of its own."""

    def __init__(self, world: World, folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
        self.world, self.folder, self.capsys = world, folder, capsys

    async def __call__(self, *words: str) -> tuple[int, str, str]:
        code = await asyncio.to_thread(main, words)
        told = self.capsys.readouterr()
        assert "Traceback" not in told.err
        return code, told.out, told.err

    def write(self, name: str, content: bytes) -> str:
        (self.folder / name).write_bytes(content)
        return str(self.folder / name)


class Across(httpx2.AsyncBaseTransport):
    """From a command's own event loop, on a thread of its own, to the world's."""

    def __init__(self, link: Link, loop: asyncio.AbstractEventLoop) -> None:
        self._link, self._loop = link, loop

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        await request.aread()
        there = asyncio.run_coroutine_threadsafe(self._link.handle_async_request(request), self._loop)
        return await asyncio.wrap_future(there)


def across(world: World, client: str = "owner", server: str = ORCH) -> Peers:
    """A service of the world for whoever runs in another thread. To be called in the world's."""
    link = Across(Link(world.wire, client, server), asyncio.get_running_loop())
    return Peers(transports={url(server): link})


def at_hand(world: World, folder: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Hand:
    """The owner at the command line, its key and addresses in the environment."""
    loop, link = asyncio.get_running_loop(), Link(world.wire, "owner", ORCH)
    world.key("owner").save(folder / "owner.pem")
    monkeypatch.setenv("GPUT_URL", url(ORCH))
    monkeypatch.setenv("GPUT_KEY", str(folder / "owner.pem"))
    monkeypatch.setattr(
        "gput.client.AsyncClient",
        lambda at, key, **more: AsyncClient(at, key, peers=Peers(transports={at: Across(link, loop)}), **more),
    )
    return Hand(world, folder, capsys)


def operator_at_hand(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """The same person as city's operator, too."""
    at, link = (
        "http://holder-city.test",
        Across(Link(world.wire, "operator", "holder-city"), asyncio.get_running_loop()),
    )
    monkeypatch.setattr("gput.commands.operator.Peers", lambda **_more: Peers(transports={at: link}))
    monkeypatch.setenv("GPUT_HOLDER_URL", at)
    monkeypatch.setenv("GPUT_HOLDER_TOKEN", str(world.folder / "holder-city" / "operator.token"))


def edited(text: str, **changes: Any) -> bytes:
    return json.dumps({**json.loads(text), **changes}, indent=2).encode()
