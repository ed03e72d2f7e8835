"""Whoever sits between a client with a trust folder and its orchestrator changes, swaps, replays, strips, forges; and is never believed."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any
from unittest.mock import AsyncMock, Mock

import httpx2
import pytest

from gput import AsyncClient
from gput.dry_run import judged, would
from gput.trust import NotBelieved, Trust
from shared.crypto.signing import PartyKey
from shared.errors import ConfigurationError, NotAuthenticated, VerificationFailed
from shared.service.http import Peers
from tests.adversary.rows import attack
from tests.gput.believed_world import (
    CALLER,
    NONE,
    OTHER,
    RUNS,
    URL,
    Deliver,
    Hand,
    House,
    Wire,
    client_of,
    no_such,
    problem,
    resigned,
    sure_of,
)
from tests.world.world_material import Material

Use = Callable[[AsyncClient], Awaitable[Any]]
USES: dict[str, Use] = {
    "get": lambda client: client.get("whoami"),
    "items": lambda client: client.items("parties"),
    "raw": lambda client: client.raw("programs/0/archive"),
    "session": lambda client: client.session(RUNS),
    "wait": lambda client: client.wait(RUNS),
    "act": lambda client: client.act(RUNS, "cancel"),
    "delete": lambda client: client.delete(RUNS),
    "enrol": lambda client: client.enrol("north", bytes(32)),
    "upload": lambda client: client.upload_weights(b"weights"),
    "rotate": lambda client: client.rotate_key(PartyKey.generate(), PartyKey.generate()),
}
ATTACKER = PartyKey.generate()


async def stripped(request: httpx2.Request, deliver: Deliver) -> httpx2.Response:
    honest = await deliver(request)
    return httpx2.Response(honest.status_code, content=honest.content, headers={"content-type": "application/json"})


async def stripped_as_a_stream(request: httpx2.Request, deliver: Deliver) -> httpx2.Response:
    honest = await deliver(request)
    return httpx2.Response(200, content=honest.content, headers={"content-type": "text/event-stream"})


async def another_type(request: httpx2.Request, deliver: Deliver) -> httpx2.Response:
    honest = await deliver(request)
    headers = {**honest.headers, "content-type": "text/event-stream"}
    return httpx2.Response(honest.status_code, content=honest.content, headers=headers)


async def another_body(request: httpx2.Request, deliver: Deliver) -> httpx2.Response:
    honest = await deliver(request)
    return httpx2.Response(honest.status_code, content=honest.content + b" ", headers=honest.headers)


async def another_status(request: httpx2.Request, deliver: Deliver) -> httpx2.Response:
    honest = await deliver(request)
    return httpx2.Response(201, content=honest.content, headers=honest.headers)


async def a_header_more(request: httpx2.Request, deliver: Deliver) -> httpx2.Response:
    honest = await deliver(request)
    return httpx2.Response(
        honest.status_code, content=honest.content, headers={**honest.headers, "location": "http://elsewhere.test"}
    )


async def its_own_signature(request: httpx2.Request, deliver: Deliver) -> httpx2.Response:
    forged = {**json.loads((await deliver(request)).content or b"{}"), "role": "owner", "phase": "COMPLETED"}
    return resigned(httpx2.Response(200, json=forged), ATTACKER, request.headers["signature"])


async def no_content(_request: httpx2.Request, _deliver: Deliver) -> httpx2.Response:
    return httpx2.Response(204)


async def a_redirect(_request: httpx2.Request, _deliver: Deliver) -> httpx2.Response:
    return httpx2.Response(307, headers={"location": "http://elsewhere.test"})


HANDS: dict[str, tuple[Hand, str]] = {
    "the signature taken away": (stripped, "answer-not-signed"),
    "the same as a stream": (stripped_as_a_stream, "answer-not-signed"),
    "another type": (another_type, "answer-signature"),
    "another body": (another_body, "answer-signature"),
    "another status": (another_status, "answer-signature"),
    "a header more": (a_header_more, "answer-signature"),
    "a signature of its own": (its_own_signature, "answer-signature"),
    "done": (no_content, "answer-not-signed"),
    "not found": (no_such(404, "unknown-session", "Not found"), "answer-not-signed"),
    "conflict": (no_such(409, "session-ended", "Conflict"), "answer-not-signed"),
    "unknown key": (no_such(401, "signature-key-unknown", "Not authenticated"), "answer-not-signed"),
    "may not": (no_such(403, "role-missing", "Not permitted"), "answer-not-signed"),
    "a fault": (no_such(500, "internal", "Internal error"), "answer-not-signed"),
    "go elsewhere": (a_redirect, "answer-not-signed"),
}


@attack("O04", any="stopped: a client with a trust folder believes no answer that the attested identity did not sign")
@pytest.mark.parametrize("use", USES)
@pytest.mark.parametrize("name", HANDS)
async def test_nothing_that_the_orchestrator_did_not_sign_is_believed(name: str, use: str) -> None:
    (hand, code), wire = HANDS[name], Wire(house := House())
    async with client_of({URL: wire}, house.identity) as client:
        await client.whoami()
        wire.hand = hand
        with pytest.raises(VerificationFailed) as found:
            await USES[use](client)
    assert found.value.code == code
    assert URL in found.value.detail
    assert found.value.remedy
    if name in ("the signature taken away", "done"):
        assert found.value.got is None, "what is good by its status says nothing of why it would be none"


async def test_what_an_unsigned_refusal_said_is_shown_and_not_acted_on() -> None:
    wire = Wire(house := House())
    async with client_of({URL: wire}, house.identity) as client:
        wire.hand = HANDS["unknown key"][0]
        with pytest.raises(VerificationFailed) as found:
            await client.whoami()
    assert found.value.got == "signature-key-unknown: orchestrator: signature-key-unknown, it says"
    assert not isinstance(found.value, NotAuthenticated)


@attack("O04", any="stopped: an answer is signed over the request's own signature, which is over a nonce")
@pytest.mark.parametrize("kept", ["an earlier one of the same", "the one to another request"])
async def test_an_answer_to_another_request_is_refused(kept: str) -> None:
    wire, answers = Wire(house := House()), list[httpx2.Response]()

    async def hand(request: httpx2.Request, deliver: Deliver) -> httpx2.Response:
        answers.append(await deliver(request))
        return answers[0]

    async with client_of({URL: wire}, house.identity) as client:
        wire.hand = hand
        first = RUNS if kept.startswith("an earlier") else OTHER
        assert (await client.session(first))["id"] == first
        with pytest.raises(VerificationFailed) as found:
            await client.session(RUNS)
    assert found.value.code == "answer-signature"
    assert len(house.acts) == 2


@attack("O04", any="stopped: an answer is signed over the request's own signature, which is over a nonce")
async def test_answers_of_two_requests_that_are_swapped_are_refused() -> None:
    wire, both = Wire(house := House()), dict[str, asyncio.Future[httpx2.Response]]()

    async def hand(request: httpx2.Request, deliver: Deliver) -> httpx2.Response:
        here, there = (RUNS, NONE) if request.url.path.endswith(RUNS) else (NONE, RUNS)
        loop = asyncio.get_running_loop()
        both.setdefault(there, loop.create_future())
        both.setdefault(here, loop.create_future()).set_result(await deliver(request))
        return await both[there]

    async with client_of({URL: wire}, house.identity) as client:
        await client.whoami()
        wire.hand = hand
        found = await asyncio.gather(client.session(RUNS), client.session(NONE), return_exceptions=True)
    assert [getattr(one, "code", one) for one in found] == ["answer-signature"] * 2


@pytest.mark.parametrize("ask", ["an act", "a submission"])
async def test_a_dry_run_is_judged_by_nobody_in_the_orchestrator_s_place(ask: str, gput_material: Material) -> None:
    """A service's word it is, too, that something would be refused."""
    wire, manifest = Wire(house := House()), gput_material.manifest()

    async def hand(request: httpx2.Request, deliver: Deliver) -> httpx2.Response:
        refusal = problem(422, "invalid-manifest", "Invalid manifest")
        return refusal if "/dry-run/" in request.url.path else await deliver(request)

    async with client_of({URL: wire}, house.identity) as client:
        wire.hand = hand
        with pytest.raises(NotBelieved) as found, judged():
            await (client.would("sessions", RUNS, "pause") if ask == "an act" else would(client, manifest, [], None))
    assert found.value.code == "answer-not-signed"


@pytest.mark.parametrize(
    ("answer", "code"),
    [
        (None, "quote-measurement"),
        (problem(403, "role-missing", "Not permitted"), "peer-unintelligible"),
        (problem(404, "unknown-session", "Not found"), "peer-unintelligible"),
        (httpx2.Response(200, json={"statement": "e30=", "evidence": {"quote": "e30="}}), "peer-unintelligible"),
    ],
)
async def test_what_comes_in_the_place_of_a_proof_judges_no_dry_run(
    answer: httpx2.Response | None, code: str, tmp_path: Path
) -> None:
    wire = Wire(House())
    if answer is not None:
        wire._deliver = AsyncMock(return_value=answer)  # type: ignore[method-assign]
    (tmp_path / "cpu-roots.pem").touch()
    trust = Trust(tmp_path) if answer is not None else sure_of()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("gput.attest.trust.load_trust", Mock())
        async with AsyncClient(URL, CALLER, trust=trust, peers=Peers(transports={URL: wire})) as client:
            with pytest.raises(NotBelieved) as found, judged():
                await client.would("sessions", RUNS, "pause")
    assert found.value.code == code


async def test_a_trust_folder_that_is_none_judges_no_dry_run(tmp_path: Path) -> None:
    peers = Peers(transports={URL: Wire(House())})
    async with AsyncClient(URL, CALLER, trust=Trust(tmp_path), peers=peers) as client:
        with pytest.raises(ConfigurationError) as found, judged():
            await client.would("sessions", RUNS, "pause")
    assert found.value.code == "no-trust"
