"""What a client with a trust folder sends is signed as it leaves, sent once, and whom it asks for a proof. Knows no stream's content."""

from __future__ import annotations

import json
import time

import httpx2
import pytest

from shared.errors import NotAuthenticated, Unavailable, VerificationFailed
from shared.service.problem_reader import PASSING
from shared.service.signatures import KnownKey, RequestParts, verify_request
from shared.service.signed_answers import ACCEPT_ANSWER
from tests.gput.believed_world import (
    CALLER,
    PROBLEM,
    RUNS,
    STANDBY,
    URL,
    Deliver,
    House,
    Wire,
    client_of,
    problem,
    resigned,
)


class Nonces:
    """What was signed is heard once."""

    window_s = 60.0

    def __init__(self) -> None:
        self.heard: set[bytes] = set()

    async def remember(self, fingerprint: str, nonce: bytes, created: int) -> None:
        assert nonce not in self.heard
        self.heard.add(nonce)


async def test_all_that_is_sent_is_signed_as_it_is_sent() -> None:
    """Address with its parameters, body, and the wish for a signed answer beside it."""
    wire = Wire(house := House())
    async with client_of({URL: wire}, house.identity) as client:
        await client.whoami()
        await client._peer.request("GET", "/v1/whoami", params={"limit": 7, "after": "a b"})
        async with client._peer.stream("GET", "/v1/whoami", params={"since": 3}) as answer:
            await answer.aread()
        await client.act(RUNS, "cancel")
        await client.upload_weights(b"weights")
        async with client._peer.stream("GET", "/v1/whoami", headers={"Idempotency-Key": "K"}) as answer:
            await answer.aread()

    async def known(fingerprint: str) -> KnownKey:
        assert fingerprint == CALLER.fingerprint
        return KnownKey(CALLER.public, "olga", frozenset())

    nonces = Nonces()
    for one in wire.seen:
        parts = RequestParts(one.method, str(one.url), {name.lower(): value for name, value in one.headers.items()})
        await verify_request(parts, one.content, keys=known, now=time.time(), replay=nonces)
    asked = [one for one in wire.seen if one.url.path != "/v1/attestation"]
    assert [one.url.query for one in asked[1:3]] == [b"limit=7&after=a+b", b"since=3"]
    assert {one.headers["accept-signature"] for one in asked} == {ACCEPT_ANSWER}
    assert len(nonces.heard) == len(wire.seen) == 7


@pytest.mark.parametrize("own", [None, "Wait for its operator."])
async def test_what_an_unsigned_outage_says_to_do_is_shown_or_else_whom_to_look_at(own: str | None) -> None:
    said = {"status": 503, "code": "closed", "title": "Unavailable", "detail": "shut"} | (
        {"remedy": own} if own else {}
    )
    wire = Wire(house := House())
    wire.hand = lambda _request, _deliver: answered(httpx2.Response(503, json=said, headers={"content-type": PROBLEM}))
    async with client_of({URL: wire}, house.identity) as client:
        with pytest.raises(Unavailable) as found:
            await client.whoami()
    assert found.value.remedy == (own or "Check that orchestrator runs, and what stands before it.")


async def answered(answer: httpx2.Response) -> httpx2.Response:
    return answer


@pytest.mark.parametrize("status", sorted(PASSING))
async def test_an_outage_under_another_s_signature_is_none(status: int) -> None:
    """Whoever signs says that it is the orchestrator: that is not believed, and not tried again."""
    wire = Wire(house := House())
    told: list[str] = []

    async def hand(request: httpx2.Request, _deliver: Deliver) -> httpx2.Response:
        told.append(request.url.path)
        good = resigned(problem(200, "x", "X"), house.identity, request.headers["signature"])
        return httpx2.Response(status, content=good.content, headers=good.headers)

    wire.hand = hand
    async with client_of({URL: wire}, house.identity) as client:
        with pytest.raises(VerificationFailed) as found:
            await client.whoami()
    assert (found.value.code, len(told)) == ("answer-signature", 1)


async def test_a_refusal_under_another_s_signature_tells_whose_it_is() -> None:
    wire, stranger = Wire(house := House()), House()

    async def hand(request: httpx2.Request, _deliver: Deliver) -> httpx2.Response:
        refusal = problem(404, "unknown-session", "Not found")
        return resigned(refusal, stranger.identity, request.headers["signature"])

    wire.hand = hand
    async with client_of({URL: wire}, house.identity) as client:
        with pytest.raises(VerificationFailed) as found:
            await client.whoami()
    assert (found.value.code, found.value.got) == ("answer-signature", stranger.identity.fingerprint)


async def test_a_proof_s_word_on_the_client_s_own_key_is_passed_on() -> None:
    wire = Wire(House())
    wire._deliver = lambda _request: answered(problem(401, "signature-key-unknown", "Not authenticated"))  # type: ignore[method-assign]
    async with client_of({URL: wire}) as client:
        with pytest.raises(NotAuthenticated) as found:
            await client.whoami()
    assert found.value.code == "signature-key-unknown"


async def test_each_proof_is_asked_for_over_a_nonce_of_its_own() -> None:
    wire = Wire(house := House())
    async with client_of({URL: wire}, house.identity) as client:
        for _ in range(2):
            await client.attest()
    nonces = {json.loads(one.content)["nonce"] for one in wire.seen}
    assert [len(bytes.fromhex(nonce)) for nonce in nonces] == [32, 32]


# ---------------------------------------------------------------- two addresses


ONCE = {"name": "north"}
"""What may be done once and has no key of its own."""


async def test_what_was_not_sent_for_want_of_a_proof_is_sent_to_the_other_address() -> None:
    wires = {URL: Wire(House()), STANDBY: Wire(leader := House())}
    wires[URL].house = None
    async with client_of(wires, leader.identity) as client:
        await client._peer.request("POST", "/v1/parties", json=ONCE)
    assert leader.acts == ["POST /v1/parties"]


async def test_what_was_answered_by_one_that_can_no_more_be_asked_for_a_proof_is_not_sent_again() -> None:
    first, taken_over, other = House(), House(), House()
    wires = {URL: Wire(first), STANDBY: Wire(other)}

    async def hand(request: httpx2.Request, deliver: Deliver) -> httpx2.Response:
        wires[URL].house = taken_over
        answer = await deliver(request)
        taken_over.leads = False
        return answer

    async with client_of(wires, first.identity, taken_over.identity, other.identity) as client:
        await client.whoami()
        wires[URL].hand = hand
        with pytest.raises(Unavailable) as found:
            await client._peer.request("POST", "/v1/parties", json=ONCE)
    assert (found.value.code, taken_over.acts, other.acts) == ("not-leader", ["POST /v1/parties"], [])


async def test_a_proof_is_asked_for_where_it_answered_last() -> None:
    """Who is not believed there is not passed over; who is away is, and is told of where nobody proves anything."""
    wires = {URL: Wire(first := House(leads=False)), STANDBY: Wire(last := House())}
    async with client_of(wires, first.identity, last.identity) as client:
        await client.whoami()
        first.leads = True
        assert (await client.attest()).identity_key == last.identity.public
        wires[STANDBY].house = House()
        with pytest.raises(VerificationFailed) as found:
            await client.attest()
        assert (found.value.code, first.proofs) == ("quote-measurement", 0)
        wires[STANDBY].house = None
        assert (await client.attest()).identity_key == first.identity.public
        first.leads = False
        with pytest.raises(Unavailable) as nobody:
            await client.attest()
        assert nobody.value.code == "peer-unreachable"
