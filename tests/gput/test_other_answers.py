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


FORGED = [
    {"seq": "x"}, {"seq": None}, {"at": None}, {"at": "1.5"}, {"visits": 5}, {"visit": ["v"]}, {"durations": [1]},
    {"durations": {"a": "x"}}, {"tour_durations": {"a": None}}, {"position": "x"}, {"round": []}, {"validation_after": "1"},
]  # fmt: skip


@pytest.mark.parametrize("data", FORGED, ids=str)
async def test_what_is_reckoned_with_in_an_event_is_what_it_must_be(data: Any) -> None:
    """For whoever takes events as they come as well: the command line draws, counts and exports them."""
    event = f"id: 1\nevent: visit\ndata: {json.dumps(data)}\n\n"
    async with client_of(Streams(("text/event-stream", event), ("text/event-stream", FINAL))) as client:
        with pytest.raises(Unavailable) as told:
            await heard(client.events(SESSION))
    assert (told.value.code, next(iter(data)) in told.value.detail) == ("peer-unintelligible", True)


HTML = ("text/html", "<html>")
NO_STREAM = {"a page": HTML, "no kind": ("", ""), "an endless event": ("text/event-stream", "data: " + "x" * 2**21)}


@pytest.mark.parametrize("phase", ["RUNNING", "COMPLETED"])
@pytest.mark.parametrize("kind", NO_STREAM)
async def test_what_is_no_stream_of_events_would_be_none_another_time(kind: str, phase: str) -> None:
    streams = Streams(*([NO_STREAM[kind]] * 3), phase=phase)
    async with client_of(streams) as client:
        with pytest.raises(Unavailable) as told:
            await heard(client.events(SESSION))
    assert (told.value.code, streams.opened) == ("peer-unintelligible", 1)


FINAL = 'id: 9\nevent: session\ndata: {"fact": "completed"}\n\n'
LIFELESS = {"cut at once": None, "ended at once": "", "how often to come back": "retry: 1000\n\n"}


@pytest.mark.parametrize("kind", LIFELESS)
async def test_a_stream_that_opens_and_brings_nothing_tries_patience(
    kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Were its opening a sign of life, it would be opened until it brings the session's end."""
    monkeypatch.setattr("gput.api.PATIENCE_S", 0.0)
    monkeypatch.setattr("gput.lull.FIRST_PAUSE_S", 0.0)
    streams = Streams(*([("text/event-stream", LIFELESS[kind])] * 9), ("text/event-stream", FINAL))
    async with client_of(streams) as client:
        with pytest.raises(Unavailable) as told:
            await heard(client.events(SESSION))
    assert (told.value.code, streams.opened < 9) == ("peer-unreachable", True)


@pytest.mark.parametrize("sign", [": ping\n\n", "retry: 1\n\n: ping\n\n", 'id: 3\nevent: visit\ndata: {"seq": 1}\n\n'])
async def test_a_stream_that_says_something_is_followed(sign: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gput.api.PATIENCE_S", 0.0)
    monkeypatch.setattr("gput.lull.FIRST_PAUSE_S", 0.0)
    streams = Streams(*([("text/event-stream", sign)] * 9), ("text/event-stream", FINAL))
    async with client_of(streams) as client:
        assert (await heard(client.events(SESSION)))[-1].id == 9
    assert streams.opened == 10


@pytest.mark.parametrize("phase", ["COMPLETED", "RUNNING"])
async def test_that_there_is_nothing_more_ends_the_reading_of_an_ended_session(
    phase: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("gput.api.PATIENCE_S", 0.0)
    monkeypatch.setattr("gput.lull.FIRST_PAUSE_S", 0.0)
    streams = Streams(*([204] * 9), ("text/event-stream", FINAL), phase=phase)
    async with client_of(streams) as client:
        if phase == "COMPLETED":
            assert (await heard(client.events(SESSION, after=9)), streams.opened) == ([], 1)
        else:
            with pytest.raises(Unavailable):
                await heard(client.events(SESSION, after=9))


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


class Cut(httpx2.AsyncByteStream):
    """A body whose connection breaks before its first byte."""

    async def __aiter__(self) -> AsyncIterator[bytes]:
        raise httpx2.ReadError("cut")
        yield b""


class Streams:
    """An orchestrator of one session whose streams are these, one after another: kind and text (None: it breaks), or a bare status."""

    def __init__(self, *streams: tuple[str, str | None] | int, phase: str = "RUNNING") -> None:
        self._streams, self._phase, self.opened = streams, phase, 0

    def __call__(self, request: httpx2.Request) -> httpx2.Response:
        if not request.url.path.endswith("/events"):
            return httpx2.Response(200, json={"id": SESSION, "phase": self._phase})
        stream = self._streams[self.opened]
        self.opened += 1
        if isinstance(stream, int):
            return httpx2.Response(stream)
        kind, text = stream
        body = {"stream": Cut()} if text is None else {"content": text}
        return httpx2.Response(200, headers={"content-type": kind}, **body)  # type: ignore[arg-type]


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
