"""The Python client against the in-process world: codes, pages, events over dropped connections, no thread is left."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator
from pathlib import Path
from typing import TYPE_CHECKING, cast

import httpx2
import pytest

from gpu_agent.unit import GpuUnit
from gput import UNATTESTED, AsyncClient, Client, Trust
from shared.crypto.signing import PartyKey
from shared.errors import BadRequest, ConfigurationError, Conflict, NotFound, Unavailable
from shared.service.http import Peers
from tests.world.world import World, url
from tests.world.world_material import Material
from tests.world.world_wire import Call, Deliver, Link

if TYPE_CHECKING:
    from shared.wire.attestation import OrchestratorProof


@pytest.fixture
async def world(tmp_path: Path, gput_material: Material, gput_unit: GpuUnit) -> AsyncIterator[World]:
    async with World(tmp_path / "world", gput_material, gput_unit) as world:
        yield world


async def test_codes_pages_and_events(world: World, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    with pytest.raises(NotFound) as found:
        await world.owner.session("s_aaaaaaaaaaaaaaaa")
    assert found.value.code == "unknown-session"
    session = await world.submit()
    with pytest.raises(Conflict) as early:
        await world.owner.model(session, tmp_path / "m")
    assert early.value.code == "model-not-ready"
    assert os.listdir(tmp_path) == ["world"]
    await world.completed(session)
    whole = await world.owner.items(f"sessions/{session}/log/leaves")
    monkeypatch.setattr("gput.api.PAGE", 2)
    assert await world.owner.items(f"sessions/{session}/log/leaves") == whole
    assert len(whole) > 4

    undisturbed = [event async for event in world.owner.events(session)]
    streams = []

    async def drop(call: Call, deliver: Deliver) -> httpx2.Response:
        """The first two answers break off in their middle."""
        answer = await deliver(call)
        if not call.path.endswith("/events"):
            return answer
        streams.append(dict(call.headers)["last-event-id"])
        if len(streams) > 2:
            return answer
        lines = answer.content.split(b"\n\n")
        return httpx2.Response(200, headers=answer.headers, content=b"\n\n".join(lines[: len(lines) // 2]) + b"\n\n")

    world.wire.hooks.append(drop)
    # The session has ended before the first of them broke off: what it said last is told all the same.
    resumed = [event async for event in world.owner.events(session)]
    assert resumed == undisturbed
    assert streams[0] == "0"
    assert [int(at) for at in streams] == sorted({int(at) for at in streams})


async def test_files_are_named_by_text_as_well_and_refused_in_the_promised_family(world: World, tmp_path: Path) -> None:
    assert Trust(str(tmp_path)).folder == tmp_path
    assert Trust(str(tmp_path), None, True) == Trust(tmp_path, allow_emulated=True) != Trust(tmp_path)
    peers = Peers(transports={url("orchestrator"): Link(world.wire, "owner", "orchestrator")})
    client = AsyncClient(url("orchestrator"), world.key("owner"), trust=UNATTESTED, peers=peers)
    (tmp_path / "p.gput").write_bytes(world.material.archive)
    assert (await client.programs.upload(str(tmp_path / "p.gput"))).name
    with pytest.raises(BadRequest) as absent:
        await client.programs.upload(str(tmp_path / "absent"))
    assert absent.value.code == "no-program"
    session = await world.submit()
    await world.completed(session)
    with pytest.raises(BadRequest) as nowhere:
        await client.sessions.model(session, str(tmp_path / "absent" / "model"))
    assert nowhere.value.code == "cannot-write"


def test_a_folder_without_roots_is_no_trust_folder(tmp_path: Path) -> None:
    for folder in (tmp_path, tmp_path / "absent"):
        with pytest.raises(ConfigurationError) as found:
            Trust(folder).verify(cast("OrchestratorProof", None), nonce="", caller="", at=0.0)
        assert found.value.code == "no-trust"


def test_a_client_that_cannot_be_made_leaves_no_thread(tmp_path: Path) -> None:
    import threading

    before = threading.active_count()
    with pytest.raises(ConfigurationError):
        Client("http://127.0.0.1:9", tmp_path / "absent.pem")
    with pytest.raises(BadRequest):
        Client("nonsense", PartyKey.generate())
    assert threading.active_count() == before


@pytest.mark.parametrize("body", [b"<html>", b"[" * 20_000], ids=["no JSON", "nested too deep"])
async def test_an_answer_to_a_file_that_cannot_be_read_is_named(body: bytes) -> None:
    address = "http://orchestrator.test"
    peers = Peers(transports={address: httpx2.MockTransport(lambda _request: httpx2.Response(202, content=body))})
    async with AsyncClient(address, PartyKey.generate(), trust=UNATTESTED, peers=peers) as client:
        for say in (client.upload_weights(b"w"), client.delete("s_aaaaaaaaaaaaaaaa")):
            with pytest.raises(Unavailable) as caught:
                await say
            assert caught.value.code == "peer-unintelligible"
