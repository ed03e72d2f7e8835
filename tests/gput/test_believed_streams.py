"""Streams of a client with a trust folder: what comes is anybody's. A model must be the one that was signed for, a refusal signed."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator
from pathlib import Path

import httpx2
import pytest

from gput import UNATTESTED, AsyncClient
from gput.__main__ import main
from shared.errors import Conflict, NotFound, Unavailable, VerificationFailed
from shared.service import answers
from shared.service.http import Peers
from tests.adversary.rows import attack
from tests.gput.believed_world import (
    CALLER,
    NONE,
    RUNS,
    STANDBY,
    URL,
    Deliver,
    Hand,
    House,
    Wire,
    at_once,
    client_of,
    commands_reach,
    no_such,
    problem,
    streamed,
)
from tests.service.test_answers import Endless


@pytest.mark.parametrize("status", [300, 307, 399])
async def test_a_stream_that_leads_elsewhere_must_be_signed_as_well(status: int) -> None:
    wire = Wire(house := House())

    async def hand(request: httpx2.Request, deliver: Deliver) -> httpx2.Response:
        moved = httpx2.Response(status, headers={"location": "http://elsewhere.test"})
        return moved if request.url.path.endswith("/model") else await deliver(request)

    wire.hand = hand
    async with client_of({URL: wire}, house.identity) as client:
        with pytest.raises(VerificationFailed) as found:
            async with client._peer.stream("GET", f"/v1/sessions/{RUNS}/model"):
                pytest.fail("it is no answer")
    assert found.value.code == "answer-not-signed"
    assert found.value.got, "and what it was is told"


async def test_a_stream_s_refusal_must_be_signed_as_well() -> None:
    wire = Wire(house := House())
    async with client_of({URL: wire}, house.identity) as client:
        with pytest.raises(NotFound):  # its own word
            await anext(client.events(NONE))
        wire.hand = no_such(404, "unknown-session", "Not found")
        with pytest.raises(VerificationFailed) as found:
            await anext(client.events(RUNS))
    assert found.value.code == "answer-not-signed"


async def not_ready(request: httpx2.Request, deliver: Deliver) -> httpx2.Response:
    refusal = problem(409, "model-not-ready", "Conflict")
    return refusal if request.url.path.endswith("/model") else await deliver(request)


async def test_that_a_session_has_ended_is_asked_for_and_not_heard_in_its_stream() -> None:
    wire = Wire(house := House())

    async def hand(request: httpx2.Request, deliver: Deliver) -> httpx2.Response:
        if request.url.path.endswith("/events"):
            return httpx2.Response(204)
        answer = await deliver(request)
        return httpx2.Response(200, content=answer.content.replace(b"RUNNING", b"FAILED"), headers=answer.headers)

    wire.hand = hand
    async with client_of({URL: wire}, house.identity) as client:
        with pytest.raises(VerificationFailed):
            await anext(client.events(RUNS))


async def made_up(request: httpx2.Request, deliver: Deliver) -> httpx2.Response:
    """A model of its own, under that one's digest."""
    return streamed(b"made up") if request.url.path.endswith("/model") else await deliver(request)


async def exchanged(request: httpx2.Request, deliver: Deliver) -> httpx2.Response:
    """Another model under the digest of the one that was exported."""
    if not request.url.path.endswith("/model"):
        return await deliver(request)
    return httpx2.Response(200, content=b"made up", headers=streamed(b"model").headers)


class Behind(httpx2.AsyncByteStream):
    """A model that does not end where it ended."""

    def __init__(self, model: bytes) -> None:
        self._model, self.taken = model, 0

    async def __aiter__(self) -> AsyncIterator[bytes]:
        yield self._model
        while self.taken < 2**20:
            self.taken += 2**16
            yield b"x" * 2**16


async def test_what_goes_on_behind_a_model_s_end_fills_no_disk(tmp_path: Path) -> None:
    """Its length is signed for as its digest is."""
    wire, tag = Wire(house := House(model=b"model")), streamed(b"model").headers["etag"]
    for said, taken in ({"content-length": str(2**20)}, 0), ({}, 2**16), ({"content-length": "5"}, 2**16):
        body = Behind(b"model")

        async def hand(request: httpx2.Request, deliver: Deliver) -> httpx2.Response:
            if not request.url.path.endswith("/model"):
                return await deliver(request)
            return httpx2.Response(200, stream=body, headers={"etag": tag, **said})  # noqa: B023  # of this turn

        wire.hand = hand
        async with client_of({URL: wire}, house.identity) as client:
            with pytest.raises(VerificationFailed) as found:
                await client.model(RUNS, tmp_path / "model")
        assert (found.value.code, found.value.expected, body.taken) == ("model-altered", "5 bytes", taken)
    assert os.listdir(tmp_path) == []


@attack("O04", any="stopped: a model is compared with the digest that the attested orchestrator signed")
@pytest.mark.parametrize("exported", [b"model", None])
@pytest.mark.parametrize(
    ("hand", "code"), [(made_up, "model-altered"), (exchanged, "model-altered"), (not_ready, "answer-not-signed")]
)
async def test_a_model_that_was_made_up_is_refused(
    hand: Hand, code: str, exported: bytes | None, tmp_path: Path
) -> None:
    wire = Wire(house := House(model=exported))
    wire.hand = hand
    async with client_of({URL: wire}, house.identity) as client:
        with pytest.raises(VerificationFailed) as found:
            await client.model(RUNS, tmp_path / "model")
    assert (found.value.code, os.listdir(tmp_path)) == (code, [])


async def test_the_model_that_was_exported_is_taken_and_one_that_is_not_ready_awaited(tmp_path: Path) -> None:
    wire = Wire(house := House())
    async with client_of({URL: wire}, house.identity) as client:
        with pytest.raises(Conflict) as early:
            await client.model(RUNS, tmp_path / "model")
        assert (early.value.code, os.listdir(tmp_path)) == ("model-not-ready", [])
        house.model = b"model"
        await client.model(RUNS, tmp_path / "model")
    assert os.listdir(tmp_path) == ["model"]


def test_a_model_that_was_made_up_is_not_exported(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    wire, key, target = Wire(house := House(model=b"model")), tmp_path / "key.pem", tmp_path / "model"
    CALLER.save(key)
    commands_reach(monkeypatch, {URL: wire}, house.identity)
    export = ["session", "export", RUNS, "--key", str(key), "-o", str(target)]
    wire.hand = made_up
    assert main(export) == 4
    assert "[model-altered]" in capsys.readouterr().err
    assert not target.exists()
    wire.hand = None
    assert main(export) == 0
    assert target.read_bytes() == b"model"


def standby_first(trusts: bool) -> AsyncClient:
    """A client of two addresses, of which the second one leads."""
    leader = House(model=b"model")
    wires = {STANDBY: Wire(House(leads=False)), URL: Wire(leader)}
    if trusts:
        return client_of(wires, leader.identity)
    return AsyncClient(",".join(wires), CALLER, trust=UNATTESTED, peers=Peers(transports=dict(wires), sleep=at_once))


@pytest.mark.parametrize("trusts", [True, False])
async def test_a_stream_as_the_first_thing_asked_passes_a_standby_over(trusts: bool, tmp_path: Path) -> None:
    async with standby_first(trusts) as client:
        await client.model(RUNS, tmp_path / "model")
    async with standby_first(trusts) as client, client._peer.stream("GET", f"/v1/sessions/{RUNS}/model") as answer:
        assert await answer.aread() == b"model"
    assert os.listdir(tmp_path) == ["model"]


async def test_a_take_over_between_a_session_s_view_and_its_model(tmp_path: Path) -> None:
    leader, standby = House(model=b"model"), House(leads=False, model=b"model")
    wires = {URL: Wire(leader), STANDBY: Wire(standby)}

    async def hand(request: httpx2.Request, deliver: Deliver) -> httpx2.Response:
        if request.url.path.endswith("/model"):
            wires[URL].house, standby.leads = None, True
        return await deliver(request)

    wires[URL].hand = hand
    async with client_of(wires, leader.identity, standby.identity) as client:
        await client.model(RUNS, tmp_path / "model")
    assert (standby.proofs, standby.acts) == (1, [f"GET /v1/sessions/{RUNS}/model"])


@pytest.mark.parametrize("trusts", [True, False])
async def test_a_stream_s_refusal_is_read_within_a_bound(trusts: bool) -> None:
    body, wire = Endless(), Wire(house := House())

    async def hand(request: httpx2.Request, deliver: Deliver) -> httpx2.Response:
        return httpx2.Response(404, stream=body) if request.url.path.endswith("/model") else await deliver(request)

    wire.hand = hand
    peers = Peers(transports={URL: wire}, sleep=at_once)
    blind = AsyncClient(URL, CALLER, trust=UNATTESTED, peers=peers)
    async with client_of({URL: wire}, house.identity) if trusts else blind as client:
        with pytest.raises(Unavailable) as found:
            async with client._peer.stream("GET", f"/v1/sessions/{RUNS}/model"):
                pytest.fail("it was refused")
    assert found.value.code == "peer-unintelligible"
    assert answers.MAX_REFUSAL_BYTES < body.taken <= answers.MAX_REFUSAL_BYTES + 65536
    assert body.closed
