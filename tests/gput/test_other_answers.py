"""Whoever answers in the orchestrator's place, and whatever it answers: the client's errors are those of the family."""

from __future__ import annotations

import json
import random
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import aclosing
from pathlib import Path
from typing import Any

import httpx2
import pytest

from gput.client import UNATTESTED, AsyncClient, Trust
from shared.crypto.signing import PartyKey
from shared.errors import GputError, Unavailable, VerificationFailed
from shared.service.http import Peers

SESSION = "s_abcdefghijklmnop"
ANSWERS = {"nothing in it": {}, "a list": [], "a number": 7, "empty": None, "a page of numbers": {"items": [7]}}


async def heard(events: AsyncIterator[Any]) -> list[Any]:
    return [event async for event in events]


CALLS: dict[str, Callable[[AsyncClient], Awaitable[object]]] = {
    "me": lambda client: client.parties.me(),
    "parties": lambda client: client.parties.list(),
    "enrol": lambda client: client.parties.enrol("h0", bytes(32)),
    "show": lambda client: client.sessions.show(SESSION),
    "find": lambda client: client.sessions.show("s_a"),
    "estimate": lambda client: client.sessions.estimate(SESSION),
    "sessions": lambda client: client.sessions.list(),
    "visits": lambda client: client.sessions.visits(SESSION),
    "wait": lambda client: client.sessions.wait(SESSION),
    "pause": lambda client: client.sessions.pause(SESSION),
    "fetches": lambda client: client.sessions.fetches(SESSION),
    "successor": lambda client: client.sessions.successor(SESSION),
    "manifest": lambda client: client.manifest(SESSION),
    "programs": lambda client: client.programs.list(),
    "gpus": lambda client: client.gpus.list(),
    "events": lambda client: heard(client.sessions.events(SESSION)),
}
KEY = PartyKey.generate(random.Random(1).randbytes)


def asking(answer: Any, trust: Any = UNATTESTED) -> AsyncClient:
    body = b"" if answer is None else json.dumps(answer).encode()

    return client_of(lambda _: httpx2.Response(200, content=body, headers={"content-type": "application/json"}), trust)


def client_of(answered: Callable[[httpx2.Request], httpx2.Response], trust: Any = UNATTESTED) -> AsyncClient:
    url = "http://orchestrator.test"
    return AsyncClient(url, KEY, trust=trust, peers=Peers(transports={url: httpx2.MockTransport(answered)}))


@pytest.mark.parametrize("answer", ANSWERS)
@pytest.mark.parametrize("call", CALLS)
async def test_an_answer_of_another_shape_is_the_peers_fault(call: str, answer: str) -> None:
    async with asking(ANSWERS[answer]) as client:
        with pytest.raises(GputError) as told:
            await CALLS[call](client)
    assert told.value.code == "peer-unintelligible"
    assert told.value.remedy


@pytest.mark.parametrize("data", ["[1]", "7", "null", '"x"', "{", "[" * 100_000])
async def test_an_event_of_another_shape_is_the_peers_fault(data: str) -> None:
    """Of a session that goes on, so that a stream which broke off would be asked for again and again."""
    async with client_of(telling(f"id: 1\nevent: visit\ndata: {data}\n\n")) as client:
        for events in (client.sessions.events(SESSION), client.events(SESSION)):
            with pytest.raises(GputError) as told:
                await heard(events)
            assert told.value.code == "peer-unintelligible"


@pytest.mark.parametrize("place", ["one", ""])
async def test_an_event_without_a_place_in_the_order_is_the_peers_fault(place: str) -> None:
    async with client_of(telling(f"id: {place}\nevent: visit\ndata: {{}}\n\n")) as client:
        with pytest.raises(Unavailable, match="no event"):
            await heard(client.events(SESSION))


async def test_what_an_event_lacks_is_the_peers_fault() -> None:
    async with (
        client_of(telling("id: 1\nevent: visit\ndata: {}\n\n")) as client,
        aclosing(client.events(SESSION)) as events,
    ):
        event = await anext(events)
        with pytest.raises(Unavailable, match="without fact"):
            _ = event.data["fact"]


def telling(stream: str) -> Callable[[httpx2.Request], httpx2.Response]:
    """An orchestrator of one session, which is running, with this stream of events."""
    view = json.dumps({"id": SESSION, "phase": "RUNNING"})

    def answered(request: httpx2.Request) -> httpx2.Response:
        kind, text = (
            ("text/event-stream", stream) if request.url.path.endswith("/events") else ("application/json", view)
        )
        return httpx2.Response(200, text=text, headers={"content-type": kind})

    return answered


@pytest.mark.parametrize("answer", ANSWERS)
async def test_what_proves_nothing_is_not_believed(answer: str, tmp_path: Path) -> None:
    async with asking(ANSWERS[answer], Trust.__new__(Trust)) as client:
        with pytest.raises(VerificationFailed) as told:
            await client.attest()
    assert told.value.code == "peer-unintelligible"


@pytest.mark.parametrize("document", ["", "e30=", "bm8=", "abc"])
async def test_a_manifest_that_is_none_is_refused_by_name(document: str) -> None:
    async with asking({"document": document, "signature": ""}) as client:
        with pytest.raises(GputError):
            await client.manifest(SESSION)
