"""Whom a client with a trust folder believes: at each address, after a restart, a take-over, an outage; and who asks for none of it."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable
from typing import Any

import httpx2
import pytest

from gput import UNATTESTED, AsyncClient
from shared.errors import GputError, NotFound, Unavailable, VerificationFailed
from shared.service.http import Peers
from tests.gput.believed_world import (
    CALLER,
    ME,
    NONE,
    PROBLEM,
    RUNS,
    STANDBY,
    URL,
    Deliver,
    House,
    Wire,
    at_once,
    client_of,
    no_such,
    problem,
    resigned,
)


async def test_honest_answers_are_taken_and_it_is_attested_once() -> None:
    wire = Wire(house := House())
    async with client_of({URL: wire}, house.identity) as client:
        found = await asyncio.gather(client.whoami(), client.items("parties"), client.session(RUNS))
        assert (found[0], found[1], found[2]["phase"]) == (ME, [ME], "RUNNING")
        assert await client.delete(RUNS) is None
        assert json.loads(await client.raw("programs/0/archive")) == ME
        with pytest.raises(NotFound) as nobody:  # signed, so it is the orchestrator's word
            await client.session(NONE)
        assert nobody.value.code == "unknown-session"
    assert house.proofs == 1
    assert wire.seen[0].url.path == "/v1/attestation"
    assert all("gput-answer/1" in request.headers["accept-signature"] for request in wire.seen[1:])


async def test_a_restart_under_the_same_identity_asks_for_no_proof() -> None:
    wire = Wire(house := House())
    async with client_of({URL: wire}, house.identity) as client:
        await client.whoami()
        wire.house = None
        with pytest.raises(Unavailable) as away:
            await client.whoami()
        assert away.value.code == "peer-unreachable"
        wire.house = again = House(house.identity)
        assert await client.whoami() == ME
    assert (house.proofs, again.proofs) == (1, 0)


async def test_another_identity_is_attested_once_and_then_believed_or_refused() -> None:
    wire, next_one = Wire(House()), House()
    assert wire.house is not None
    async with client_of({URL: wire}, wire.house.identity, next_one.identity) as client:
        await client.whoami()
        wire.house = next_one
        assert [await client.whoami() for _ in range(2)] == [ME, ME]
        assert (next_one.proofs, next_one.acts) == (1, ["GET /v1/whoami"] * 2), "the act that met it is not done twice"
        wire.house = unknown = House()
        for _ in range(2):
            with pytest.raises(VerificationFailed) as found:
                await client.whoami()
            assert found.value.code == "quote-measurement"
    assert unknown.proofs == 2
    assert unknown.acts == ["GET /v1/whoami"], "once it is known to be another, nothing is sent before it is proven"


async def test_what_was_attested_is_believed_no_more_once_it_could_not_be_attested_anew() -> None:
    wire = Wire(house := House())
    async with client_of({URL: wire}, house.identity) as client:
        assert await client.whoami() == ME
        wire.house = House()
        with pytest.raises(VerificationFailed):
            await client.attest()
        wire.house = house
        assert await client.whoami() == ME
    assert house.proofs == 2


async def test_two_answers_of_another_identity_ask_for_one_proof() -> None:
    wire, next_one, both = Wire(House()), House(), asyncio.Barrier(2)
    assert wire.house is not None

    async def hand(request: httpx2.Request, deliver: Deliver) -> httpx2.Response:
        answer = await deliver(request)
        await both.wait()
        return answer

    async with client_of({URL: wire}, wire.house.identity, next_one.identity) as client:
        await client.whoami()
        wire.house, wire.hand = next_one, hand
        assert await asyncio.gather(client.whoami(), client.whoami()) == [ME, ME]
    assert next_one.proofs == 1


async def test_two_addresses_are_attested_each_before_it_is_believed() -> None:
    leader, standby = House(), House(leads=False)
    wires = {URL: Wire(leader), STANDBY: Wire(standby)}
    async with client_of(wires, leader.identity, standby.identity) as client:
        await client.whoami()
        assert (leader.proofs, standby.proofs, wires[STANDBY].seen) == (1, 0, [])
        wires[URL].house, standby.leads = None, True
        assert await client.whoami() == ME
        assert [request.url.path for request in wires[STANDBY].seen] == ["/v1/attestation", "/v1/whoami"]
        assert (await client.attest()).identity_key == standby.identity.public
        assert (leader.proofs, standby.proofs) == (1, 2)
        standby.leads, wires[URL].house = False, leader
        assert (await client.attest()).identity_key == leader.identity.public
        assert await client.whoami() == ME


async def test_a_second_address_that_is_not_measured_is_told_nothing() -> None:
    leader, stranger = House(leads=False), House()
    wires = {URL: Wire(leader), STANDBY: Wire(stranger)}
    async with client_of(wires, leader.identity) as client:
        with pytest.raises(VerificationFailed) as found:
            await client.act(RUNS, "cancel")
    assert found.value.code == "quote-measurement"
    assert stranger.acts == []


async def test_where_nobody_leads_that_is_what_is_said() -> None:
    wires = {URL: Wire(House(leads=False)), STANDBY: Wire(House(leads=False))}
    async with client_of(wires) as client:
        for ask in (client.whoami, client.attest):
            with pytest.raises(Unavailable) as found:
                await ask()
            assert found.value.code == "not-leader"


async def test_who_says_nothing_is_asked_for_a_proof_once() -> None:
    wire = Wire(House())

    async def silent(request: httpx2.Request) -> httpx2.Response:
        wire.seen.append(request)
        raise httpx2.ReadTimeout("nothing came")

    wire._deliver = silent  # type: ignore[method-assign]
    async with client_of({URL: wire}) as client:
        with pytest.raises(Unavailable) as found:
            await client.whoami()
    assert (found.value.code, len(wire.seen)) == ("peer-timeout", 1)


@pytest.mark.parametrize(
    ("status", "title"), [(404, "Not found"), (409, "Conflict"), (403, "Verification failed"), (403, "Not permitted")]
)
async def test_what_is_said_in_the_place_of_a_proof_is_said_of_nothing_else(status: int, title: str) -> None:
    """Whoever asks whether there is a program takes "not found" for an answer to that."""
    wire = Wire(house := House())

    async def no_proof(_request: httpx2.Request) -> httpx2.Response:
        return problem(status, "unknown-session", title)

    wire._deliver = no_proof  # type: ignore[method-assign]
    async with client_of({URL: wire}, house.identity) as client:
        with pytest.raises(VerificationFailed) as found:
            await client.get("programs/00")
    assert (found.value.code, isinstance(found.value, NotFound)) == ("peer-unintelligible", False)


# ---------------------------------------------------------------- outages


AGAIN = {408: 1, 429: 1, 502: 4, 503: 4, 504: 1}
"""How often one call asks at one address: once where the orchestrator may still be at work, or was asked too often."""


@pytest.mark.parametrize("status", AGAIN)
@pytest.mark.parametrize("kind", [PROBLEM, "text/html"])
async def test_an_unsigned_outage_is_no_answer_and_is_sat_out(
    status: int, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("gput.lull.FIRST_PAUSE_S", 0.0)
    wire, told = Wire(house := House()), 0

    async def hand(request: httpx2.Request, deliver: Deliver) -> httpx2.Response:
        nonlocal told
        told += 1
        if told > 9:
            wire.hand = None
            return await deliver(request)
        return httpx2.Response(status, content=b'{"code":"x","detail":"busy"}', headers={"content-type": kind})

    async with client_of({URL: wire}, house.identity) as client:
        await client.whoami()
        wire.hand = hand
        with pytest.raises(Unavailable) as found:
            await client.whoami()
        assert found.value.code == "peer-unreachable"
        assert "without its signature" in found.value.detail
        assert (found.value.got, told) == ("x: orchestrator: busy", AGAIN[status])
        assert (await client.patiently(RUNS))["phase"] == "RUNNING"
    assert house.proofs == 1


CHANGES: dict[str, Callable[[AsyncClient], Awaitable[Any]]] = {
    "an upload": lambda client: client.upload_weights(b"weights"),
    "an act": lambda client: client.act(RUNS, "cancel"),
}


@pytest.mark.parametrize("status", AGAIN)
@pytest.mark.parametrize("change", CHANGES)
async def test_what_may_still_be_at_work_is_asked_for_once_at_each_address(change: str, status: int) -> None:
    """An act under its Idempotency-Key would be told that it is under way; an upload would go up again."""

    async def hand(request: httpx2.Request, deliver: Deliver) -> httpx2.Response:
        await deliver(request)
        return httpx2.Response(status, content=b"<html>", headers={"retry-after": "30"})

    house = House()
    for addresses in ([URL], [URL, STANDBY]):
        wires = {address: Wire(house) for address in addresses}
        house.acts.clear()
        async with client_of(wires, house.identity) as client:
            for wire in wires.values():
                wire.hand = hand
            with pytest.raises(Unavailable) as found:
                await CHANGES[change](client)
        assert (found.value.code, found.value.retry_after_s) == ("peer-unreachable", 30)
        assert len(house.acts) == AGAIN[status] * len(addresses)


async def test_an_outage_that_is_signed_is_the_orchestrator_s_own_word() -> None:
    wire = Wire(house := House())

    async def hand(request: httpx2.Request, deliver: Deliver) -> httpx2.Response:
        await deliver(request)
        full = problem(503, "disk-full", "Unavailable")
        return resigned(full, house.identity, request.headers["signature"], headers={"retry-after": "7"})

    wire.hand = hand
    async with client_of({URL: wire}, house.identity) as client:
        with pytest.raises(Unavailable) as found:
            await client.upload_weights(b"w")
    assert (found.value.code, found.value.retry_after_s) == ("disk-full", 7)


async def test_a_proxy_before_one_of_two_addresses_leads_to_the_other() -> None:
    leader, standby = House(), House(leads=False)
    wires = {URL: Wire(leader), STANDBY: Wire(standby)}
    async with client_of(wires, leader.identity, standby.identity) as client:
        await client.whoami()
        wires[URL].hand = no_such(502, "bad-gateway", "Bad gateway")
        standby.leads = True
        assert (await client.act(RUNS, "pause"))["id"] == RUNS
    assert (standby.acts, leader.acts) == ([f"POST /v1/sessions/{RUNS}/pause"], ["GET /v1/whoami"])


# ---------------------------------------------------------------- who does not ask


async def test_an_orchestrator_of_a_release_before_is_refused_and_said_why() -> None:
    wire = Wire(house := House(signs=False))
    async with client_of({URL: wire}, house.identity) as client:
        assert (await client.attest()).identity_key == house.identity.public
        with pytest.raises(VerificationFailed) as found:
            await client.whoami()
    assert (found.value.code, "release" in (found.value.remedy or "")) == ("answer-not-signed", True)


async def test_an_unattested_client_asks_for_no_signature_and_takes_what_comes() -> None:
    wire = Wire(House(signs=False))
    client = AsyncClient(URL, CALLER, trust=UNATTESTED, peers=Peers(transports={URL: wire}, sleep=at_once))
    async with client:
        assert await client.whoami() == ME
        wire.hand = no_such(404, "unknown-session", "Not found")
        with pytest.raises(NotFound):
            await client.session(RUNS)
    assert [(r.url.path, "accept-signature" in r.headers) for r in wire.seen] == [("/v1/whoami", False)]


async def test_nobody_decided_and_nothing_is_sent() -> None:
    wire = Wire(House())
    async with AsyncClient(URL, CALLER, peers=Peers(transports={URL: wire}, sleep=at_once)) as client:
        with pytest.raises(GputError) as found:
            await client.whoami()
    assert (found.value.code, wire.seen) == ("no-trust", [])
