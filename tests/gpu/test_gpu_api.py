"""The agent's HTTP surface on a real device: ports, MUX, limits; and the agent as a process that leaves nothing behind."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import closing, suppress
from functools import partial
from pathlib import Path
from typing import Any

import httpx2
import pytest

from gpu_agent import presence
from gpu_agent.api import create_app
from gpu_agent.bodies import BODY_LIMIT
from gpu_agent.boot_counter import BootCounter
from gpu_agent.frame_bodies import FrameBodies
from gpu_agent.mux_register import MuxRegister, register_of
from gpu_agent.settings import AgentSettings
from shared.crypto.signing import PartyKey
from shared.errors import ConfigurationError
from shared.names import TravelMode
from shared.service import data_dir
from shared.service.clock import system_clock, system_entropy
from shared.service.signatures import SignedAuth
from shared.wire.codec import decode
from shared.wire.copy import DATA, TAG_BYTES, CopyAck, CopyHeader, pack_header
from shared.wire.stock import MAX_STOCK_FRAME
from tests.gpu.agent_world import BASE, Agent, opened
from tests.gpu.gpu_world import RECORD_BYTES, World, device_folder, records
from tests.gpu.test_gpu_paper import PAPER
from tests.gpu.test_gpu_paper import install as stock


@pytest.fixture
async def agent(tmp_path: Path, world: World) -> AsyncIterator[Agent]:
    async with opened(tmp_path, world) as made:
        yield made


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


async def test_a_holders_records_wait_for_the_gpu_as_long_as_they_say(
    agent: Agent, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(presence, "LOOK_S", 60.0)  # a switch over HTTP wakes them by itself
    path = "/v1/gpus/gpu-0/ports/holder-north/copy"
    waiting = asyncio.create_task(agent.client.post(f"{path}?wait_ms=10000", content=bytes(200)))
    await asyncio.sleep(0.02)
    assert not waiting.done()
    await agent.bind("holder-north")
    async with asyncio.timeout(8):  # less than they would wait unwoken
        answer = await waiting
    assert answer.json()["code"] == "malformed-copy-record"  # it came as far as to be looked at
    assert answer.headers.get("server-timing") is None  # a refusal says nothing of time
    for wrong in ("-1", "10001", "1e3", "", "٣", "000000"):
        answer = await agent.client.post(path, params={"wait_ms": wrong}, content=b"x")
        assert (answer.status_code, answer.json()["code"]) == (400, "invalid-wait")


async def test_how_long_they_waited_is_said(agent: Agent, monkeypatch: pytest.MonkeyPatch) -> None:
    begun, arrives = asyncio.Event(), presence.Presence.arrives

    async def noted(*arguments: Any) -> None:
        begun.set()
        await arrives(*arguments)

    monkeypatch.setattr(presence.Presence, "arrives", noted)
    agent.world.set_up()
    sealed = agent.world.install(32).seal(records(32))
    path = "/v1/gpus/gpu-0/ports/holder-north/copy"
    waiting = asyncio.create_task(agent.client.post(f"{path}?wait_ms=10000", content=sealed[0]))
    await begun.wait()
    await asyncio.sleep(0.02)
    await agent.bind("holder-north")
    async with asyncio.timeout(60):
        answer = await waiting
    name, _, milliseconds = answer.headers["server-timing"].partition(";dur=")
    assert name == "port"
    assert float(milliseconds) >= 10
    assert decode(CopyAck, answer.content).index == 0
    assert "server-timing" not in (await agent.client.post(path, content=sealed[1])).headers


async def test_command_frames_share_their_memory(tmp_path: Path, world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gpu_agent.ports.FrameBodies", partial(FrameBodies, 1000))
    async with opened(tmp_path, world) as agent:
        await agent.bind("orchestrator")
        path = "/v1/gpus/gpu-0/ports/orchestrator/commands"
        refused = await agent.client.post(path, content=bytes(1001))
        assert (refused.status_code, refused.json()["code"]) == (503, "too-many-frames")
        assert (await agent.client.post(path, content=bytes(1000))).json()["code"] != "too-many-frames"


async def test_only_the_platform_switches_the_mux(agent: Agent) -> None:
    path = "/v1/platform/gpus/gpu-0/mux"
    assert (await agent.client.put(path, json={"port": "holder-x"})).status_code == 401
    stranger = SignedAuth(PartyKey.generate(), system_clock, system_entropy)
    assert (await agent.client.put(path, json={"port": "holder-x"}, auth=stranger)).status_code == 401
    assert (
        await agent.client.put("/v1/platform/gpus/gpu-9/mux", json={"port": None}, auth=agent.platform)
    ).status_code == 404
    assert (await agent.client.put(path, json={"port": "../x"}, auth=agent.platform)).status_code == 422
    assert (await agent.client.get("/v1/gpus/gpu-0")).json()["port"] is None


async def test_each_door_is_on_its_own_ports_and_bounded(agent: Agent) -> None:
    base = "/v1/gpus/gpu-0/ports"
    await agent.bind("holder-north")
    for door in ("spdm", "commands"):
        assert (await agent.client.post(f"{base}/holder-north/{door}", content=b"x")).json()["code"] == "wrong-port"
    for door in ("copy", "staging"):
        assert (await agent.client.post(f"{base}/orchestrator/{door}", content=b"x")).json()["code"] == "wrong-port"
    assert (await agent.client.post(f"{base}/holder-north/copy", content=b"x")).json()[
        "code"
    ] == "malformed-copy-record"
    for door in ("copy", "staging"):
        assert (
            await agent.client.post(f"{base}/holder-north/{door}", content=bytes(BODY_LIMIT + 1))
        ).status_code == 413
        assert (await agent.client.post(f"{base}/holder-north/{door}")).json()["code"] == "malformed-copy-record"
    await agent.bind("orchestrator")
    assert (await agent.client.post(f"{base}/orchestrator/spdm", content=bytes(0x1201))).status_code == 413
    early = await agent.client.post(f"{base}/orchestrator/commands", content=b"\xa0")
    assert early.status_code == 400
    nobodys = pack_header(CopyHeader(DATA, 1, 1, 0, 1, 4)) + bytes(4 + TAG_BYTES)
    unbound = await agent.client.post(f"{base}/holder-north/copy", content=nobodys)
    assert (unbound.status_code, unbound.headers["retry-after"]) == (409, "0")


async def test_a_whole_visit_goes_through_the_ports(agent: Agent) -> None:
    """Every copy record by HTTP; the orchestrator speaks to the device directly."""
    world = agent.world
    await agent.bind("orchestrator")
    data = records(32)
    world.set_up()
    holder = world.install(32)
    await agent.bind("holder-north")
    for record in holder.seal(data):
        answer = await agent.client.post("/v1/gpus/gpu-0/ports/holder-north/copy", content=record)
        assert answer.status_code == 200
    assert decode(CopyAck, answer.content).published
    assert decode(CopyAck, answer.content).received == 32 * RECORD_BYTES


@pytest.mark.parametrize("piece", [1, 33, 10**6])
async def test_records_share_a_body_however_it_is_cut(agent: Agent, piece: int) -> None:
    agent.world.set_up()
    sealed = agent.world.install(32).seal(records(32))
    await agent.bind("holder-north")

    async def post(body: bytes) -> httpx2.Response:
        async def pieces() -> AsyncIterator[bytes]:
            for at in range(0, len(body), piece):
                yield body[at : at + piece]

        return await agent.client.post("/v1/gpus/gpu-0/ports/holder-north/copy", content=pieces())

    cut = await post(b"".join(sealed[:2])[:-1])
    assert (cut.status_code, cut.json()["code"]) == (400, "malformed-copy-record")
    for _ in range(2):  # the first was taken before the cut; all of them again change nothing
        answer = await post(b"".join(sealed))
        assert answer.status_code == 200, answer.text
        ack = decode(CopyAck, answer.content)
        assert (ack.index, ack.received, ack.published) == (len(sealed) - 1, 32 * RECORD_BYTES, True)


async def test_nothing_behind_a_refused_record_is_taken(agent: Agent) -> None:
    agent.world.set_up()
    sealed = agent.world.install(32).seal(records(32))
    await agent.bind("holder-north")
    path = "/v1/gpus/gpu-0/ports/holder-north/copy"
    early = await agent.client.post(path, content=b"".join([sealed[0], sealed[2], sealed[1]]))
    assert early.json()["code"] == "copy-refused"  # out of order: the grant is dead, and stays so
    assert (await agent.client.post(path, content=sealed[1])).json()["code"] == "copy-refused"


async def test_a_holders_port_takes_no_body_in_before_it_may_command(agent: Agent) -> None:
    """Nobody signs what comes at a port, so a stranger's bytes would lie there for as long as it likes."""
    piece, sent = bytes(1 << 16), list[int]()

    async def endless() -> AsyncIterator[bytes]:
        while len(sent) < 1024:
            sent.append(len(piece))
            yield piece

    async def refused() -> tuple[str, int]:
        sent.clear()
        answer = await agent.client.post("/v1/gpus/gpu-0/ports/holder-north/commands", content=endless())
        return answer.json()["code"], sum(sent)

    assert await refused() == ("port-not-bound", 0)
    await agent.bind("holder-north")
    assert await refused() == ("wrong-port", 0)
    agent.world.set_up(**PAPER)
    stock(agent.world, mode=TravelMode.PAPER)
    code, taken = await refused()
    assert (code, taken <= MAX_STOCK_FRAME + len(piece)) == ("body-too-large", True)


def opened_here(path: Path) -> int:
    """How often this process has the file open."""
    found = 0
    for link in Path("/proc/self/fd").iterdir():
        with suppress(FileNotFoundError):  # closed meanwhile, as that of the folder itself
            found += link.readlink() == path
    return found


async def test_an_agent_with_a_register_obeys_it_and_no_request(tmp_path: Path) -> None:
    key, register = PartyKey.generate(), register_of(tmp_path / "mux", "gpu-0")
    (tmp_path / "mux.pub").write_bytes(key.public_pem)
    settings = AgentSettings(
        data_dir=tmp_path / "data", device_dir=device_folder(), platform_key=tmp_path / "mux.pub", hbm_bytes=1 << 28,
        mux_registers=tmp_path / "mux", ports=["orchestrator", "holder-north"],
    )  # fmt: skip
    app = create_app(settings, BASE)
    async with (
        app.router.lifespan_context(app),
        httpx2.AsyncClient(transport=httpx2.ASGITransport(app), base_url=BASE) as client,
    ):

        async def said(port: str) -> tuple[int, str]:
            answer = await client.post(f"/v1/gpus/gpu-0/ports/{port}/commands", content=b"\xa0")
            return answer.status_code, answer.json()["code"]

        async def shown() -> tuple[str | None, int]:
            view = (await client.get("/v1/gpus/gpu-0")).json()
            return view["port"], view["switches"]

        assert await shown() == (None, 0)
        with closing(MuxRegister(register)) as platform:
            platform.select("holder-north")
            assert await shown() == ("holder-north", 1)
            assert await said("orchestrator") == (409, "port-not-bound")
            platform.select("orchestrator")
            assert await shown() == ("orchestrator", 2)
            assert (await said("orchestrator"))[0] == 400, "the frame came through to the device"
        auth = SignedAuth(key, system_clock, system_entropy)
        told = await client.put("/v1/platform/gpus/gpu-0/mux", json={"port": "holder-north"}, auth=auth)
        assert (told.status_code, told.json()["code"]) == (409, "mux-by-register")
        assert await shown() == ("orchestrator", 2)
        assert opened_here(register) == 1
    assert opened_here(register) == 0


async def test_public_facts_and_probes(agent: Agent) -> None:
    (view,) = (await agent.client.get("/v1/gpus")).json()["items"]
    assert view["backend"] == "EMULATED"
    assert view["boot_counter"] == agent.world.device.boot_counter
    assert (await agent.client.get("/v1/gpus/gpu-9")).status_code == 404
    for probe in ("/livez", "/readyz", "/version", "/metrics"):
        assert (await agent.client.get(probe)).status_code == 200


async def test_a_full_disk_is_said_before_anything_fails(agent: Agent, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(data_dir, "MARGIN_BYTES", 1 << 60)
    answer = await agent.client.get("/readyz")
    assert answer.status_code == 503
    assert "Free space" in answer.json()["checks"]["data_dir"]


def test_the_boot_counter_survives_and_says_when_it_cannot(tmp_path: Path) -> None:
    path = tmp_path / "gpu-0.boot"
    assert [BootCounter(path).advance() for _ in range(3)] == [1, 2, 3]
    path.write_text("three")
    with pytest.raises(ConfigurationError, match=str(path)) as caught:
        BootCounter(path)
    assert caught.value.remedy


def test_a_boot_that_cannot_be_counted_is_none(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A full disk, for instance: the GPU does not start, and the next one that does has the number."""
    path = tmp_path / "gpu-0.boot"
    counter = BootCounter(path)

    def full(_: int) -> None:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patched:
        patched.setattr("os.fsync", full)
        with pytest.raises(ConfigurationError, match="No space left") as caught:
            counter.advance()
    assert caught.value.remedy
    assert counter.advance() == BootCounter(path)._value == 1
