"""The interrupt of the MUX's register: who hears it, and that nobody waits for it, whatever lies in its place."""

from __future__ import annotations

import asyncio
import os
import socket
import stat
from contextlib import closing, suppress
from pathlib import Path

import httpx2
import pytest

from gpu_agent import presence
from gpu_agent.api import create_app
from gpu_agent.mux_interrupt import interrupt, interrupt_of, interrupts
from gpu_agent.mux_register import MuxRegister, register_of
from gpu_agent.settings import AgentSettings
from shared.crypto.signing import PartyKey
from shared.service.unix_socket import mailbox
from tests.gpu.agent_world import BASE
from tests.gpu.gpu_world import device_folder

NORTH = "holder-north"
LONG = 60.0


@pytest.fixture
def register(tmp_path: Path) -> Path:
    return register_of(tmp_path / ("m" * 100) / "mux", "gpu-0")  # longer than a socket's address may be


class Heard:
    """Counts what was heard."""

    def __init__(self) -> None:
        self.times, self._once = 0, asyncio.Event()

    def __call__(self) -> None:
        self.times += 1
        self._once.set()

    async def once(self) -> None:
        """Until something was."""
        async with asyncio.timeout(LONG):
            await self._once.wait()


async def test_a_switch_is_heard_of(register: Path) -> None:
    for _ in range(2):  # an agent that starts again takes its mailbox over
        heard = Heard()
        with interrupts(interrupt_of(register), heard), closing(MuxRegister(register)) as platform:
            platform.select(NORTH)
            await heard.once()
        assert stat.S_IMODE(interrupt_of(register).stat().st_mode) == 0o600


async def test_a_switch_home_wakes_nobody(register: Path) -> None:
    heard = Heard()
    with interrupts(interrupt_of(register), heard), closing(MuxRegister(register)) as platform:
        platform.select("orchestrator")
        await asyncio.sleep(0.01)
        assert not heard.times
        platform.select(NORTH)
        await heard.once()


async def test_after_the_block_nothing_is_heard(register: Path) -> None:
    heard = Heard()
    with interrupts(interrupt_of(register), heard):
        pass
    with closing(MuxRegister(register)) as platform:
        platform.select(NORTH)  # nobody reads there, and the platform does not care
    await asyncio.sleep(0.01)
    assert not heard.times


async def test_several_at_once_are_heard_of_once(register: Path) -> None:
    heard = Heard()
    with interrupts(interrupt_of(register), heard):
        for _ in range(8):  # a mailbox holds ten by default
            interrupt(interrupt_of(register))
        await heard.once()
        await asyncio.sleep(0.01)
        assert heard.times == 1


def test_the_platform_waits_for_nobody_who_does_not_read(register: Path) -> None:
    register.parent.mkdir(parents=True)
    with closing(mailbox(interrupt_of(register))) as full, closing(MuxRegister(register)) as platform:
        for number in range(2000):  # many more than a mailbox holds
            platform.select(f"holder-{number}")
        letters = 0
        with suppress(BlockingIOError):
            while full.recv(1):
                letters += 1
    assert 0 < letters < 2000


@pytest.mark.parametrize("there", ["a file", "a folder", "a socket of another kind"])
async def test_whatever_lies_in_the_mailboxs_place_ends_nothing(there: str, register: Path) -> None:
    place, other = interrupt_of(register), socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    register.parent.mkdir(parents=True)
    heard = Heard()
    with other:
        if there == "a file":
            place.write_bytes(b"x")
        elif there == "a folder":
            place.mkdir()
        else:
            folder = os.open(place.parent, os.O_RDONLY)
            other.bind(f"/proc/self/fd/{folder}/{place.name}")
            os.close(folder)
        with closing(MuxRegister(register)) as platform:
            platform.select(NORTH)
            with interrupts(place, heard):
                platform.select("holder-south")
                await asyncio.sleep(0.01)
    assert bool(heard.times) == (there not in ("a file", "a folder")), "a socket that was left there makes room"


async def test_who_waits_at_a_port_is_woken_by_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(presence, "LOOK_S", LONG)
    (tmp_path / "mux.pub").write_bytes(PartyKey.generate().public_pem)
    settings = AgentSettings(
        data_dir=tmp_path / "data", device_dir=device_folder(), platform_key=tmp_path / "mux.pub", hbm_bytes=1 << 28,
        mux_registers=tmp_path / "mux",
    )  # fmt: skip
    app = create_app(settings, BASE)
    transport = httpx2.ASGITransport(app)
    async with app.router.lifespan_context(app), httpx2.AsyncClient(transport=transport, base_url=BASE) as client:
        path = f"/v1/gpus/gpu-0/ports/{NORTH}/copy?wait_ms=10000"
        waiting = asyncio.create_task(client.post(path, content=bytes(200)))
        await asyncio.sleep(0.05)
        assert not waiting.done()
        with closing(MuxRegister(register_of(tmp_path / "mux", "gpu-0"))) as platform:
            platform.select(NORTH)
            async with asyncio.timeout(8):  # less than it would wait unwoken
                answer = await waiting
    assert answer.json()["code"] == "malformed-copy-record", "it came as far as to be looked at"
