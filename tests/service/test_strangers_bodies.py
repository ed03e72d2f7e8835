"""Bodies of whom nobody knows: how much of them is read, how long they are waited for, and who makes room for others."""

from __future__ import annotations

import asyncio
import json
import random
from contextlib import AsyncExitStack
from typing import Any
from unittest.mock import Mock

import httpx2
import pytest

from shared.service import connection, middleware
from shared.service.middleware import SHOWN_PATH, UNASKED_BYTES
from shared.service.signatures import SignedAuth
from tests.service.bulk_server import GET, all_of, answer, each_loop, post, run, serving
from tests.service.service_world import BASE_URL, OWNER, STRANGER, World

LONG = json.dumps({"name": "a", "count": 1}).encode() + b" " * UNASKED_BYTES


class Asked:
    """An application asked by hand: its answer, and how often it wanted more of the body."""

    def __init__(self, world: World, request: httpx2.Request, body: bytes) -> None:
        self._app, self._request, self._body = world.app, request, body
        self.read, self.status, self.code = 0, 0, ""

    async def ask(self) -> Asked:
        url, headers = self._request.url, [(name.lower(), value) for name, value in self._request.headers.raw]
        scope = {
            "type": "http", "asgi": {"version": "3.0"}, "http_version": "1.1", "method": self._request.method, "scheme": "http",
            "path": url.path, "raw_path": url.raw_path, "query_string": url.query, "root_path": "", "headers": headers,
            "client": ("192.0.2.1", 1), "server": ("service.test", 80),
        }  # fmt: skip
        await self._app(scope, self._receive, self._send)
        return self

    async def _receive(self) -> dict[str, Any]:
        self.read += 1
        return {"type": "http.request", "body": self._body, "more_body": False}

    async def _send(self, message: Any) -> None:
        if message["type"] == "http.response.start":
            self.status = message["status"]
        elif self.status >= 400:
            self.code = json.loads(message["body"])["code"]


def made(world: World, key: Any, body: bytes = LONG, path: str = "/v1/things", **headers: str) -> httpx2.Request:
    named = {"content-type": "application/json", "idempotency-key": "k", **headers}
    request = httpx2.Request("POST", f"{BASE_URL}{path}", content=body, headers=named)
    if key is not None:
        SignedAuth(key, world.clock, random.Random(7).randbytes).sign(request)
    return request


@pytest.mark.parametrize(
    ("key", "headers", "code"),
    [
        (None, {}, "signature-missing"),
        (STRANGER, {}, "signature-key-unknown"),
        (None, {"authorization": "Bearer right"}, "token-reads-only"),
        (None, {"authorization": "Bearer wrong"}, "token-reads-only"),
    ],
    ids=["nobody", "stranger", "token", "wrong-token"],
)
async def test_a_long_body_that_nobody_known_has_signed_is_refused_unread(
    world: World, key: Any, headers: dict[str, str], code: str
) -> None:
    """It would lie in memory for as long as its sender likes."""
    asked = await Asked(world, made(world, key, **headers), LONG).ask()
    assert (asked.code, asked.read, world.acts) == (code, 0, [])


async def test_a_body_in_pieces_whose_length_nobody_states_is_a_long_one(world: World) -> None:
    request = made(world, None, b"{}")
    del request.headers["content-length"]
    request.headers["transfer-encoding"] = "chunked"
    asked = await Asked(world, request, b"{}").ask()
    assert (asked.code, asked.read) == ("signature-missing", 0)


async def test_a_long_body_that_was_signed_and_changed_is_read_and_refused(world: World) -> None:
    asked = await Asked(world, made(world, OWNER), LONG[:-1] + b"\n").ask()
    assert (asked.code, asked.read, world.acts) == ("content-digest-mismatch", 1, [])


async def test_a_long_signed_body_is_taken_and_its_nonce_counts_once(world: World) -> None:
    request = made(world, OWNER)
    assert (await Asked(world, request, LONG).ask()).status == 201
    assert (await Asked(world, request, LONG).ask()).code == "signature-replayed"


async def test_a_short_body_is_judged_as_ever(world: World) -> None:
    asked = await Asked(world, made(world, None, b"{"), b"{").ask()
    assert (asked.status, asked.read) == (422, 1)


async def test_of_a_stranger_s_path_the_log_holds_a_beginning(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    log = Mock()
    monkeypatch.setattr(middleware, "_log", log)
    await Asked(world, made(world, None, b"{}", "/v1/" + "x" * 60_000), b"{}").ask()
    assert [len(call.kwargs["path"]) for call in log.info.call_args_list] == [SHOWN_PATH + 1]


# ------------------------------------------------------------------------------------------ connections


@each_loop
def test_bytes_that_came_at_once_pay_for_no_silence(loop: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """At the least rate these would have paid for five minutes."""
    for name, value in (("TICK_S", 0.05), ("GRACE_S", 0.1), ("MIN_RATE", 10_000)):
        monkeypatch.setattr(connection, name, value)

    async def act() -> None:
        async with serving(all_of) as server, server.connected() as (reader, writer):
            writer.write(post(bytes(3_000_001))[:-1])
            status, problem = await answer(reader)
            assert (status, b"request-too-slow" in problem) == (408, True)

    run(loop, act())


@each_loop
def test_where_all_bring_bodies_the_one_that_began_first_makes_room(loop: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A newcomer was hung up on, for as long as strangers held all the others."""
    monkeypatch.setattr(connection, "MAX_CONNECTIONS", 3)
    begun = asyncio.Queue[None]()

    async def served(bulk: Any, receive: Any) -> bytes:
        begun.put_nowait(None)
        if bulk is not None:
            await bulk.into(memoryview(bytearray(bulk.left)))
        return b"served"

    async def act() -> None:
        async with serving(served) as server, AsyncExitStack() as stack:
            strangers = []
            for _ in range(3):
                reader, writer = await stack.enter_async_context(server.connected())
                writer.write(post(bytes(1_000_000))[:200_000])
                await begun.get()
                strangers.append(reader)
            for _ in range(2):  # the second in place of the first, which waits by then
                reader, writer = await stack.enter_async_context(server.connected())
                writer.write(GET)
                assert await answer(reader) == (200, b"served")
            with pytest.raises((ConnectionError, asyncio.IncompleteReadError)):
                await strangers[0].readexactly(1)
            assert len(server.connections) == 3
            assert not strangers[1].at_eof()

    run(loop, act())


@each_loop
def test_where_all_are_being_answered_the_address_that_has_most_makes_room(
    loop: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Streams and requests that wait hold a connection for as long as their sender likes; a newcomer was hung up on for as long."""
    monkeypatch.setattr(connection, "MAX_CONNECTIONS", 4)
    begun, enough = asyncio.Queue[None](), asyncio.Event()

    async def served(bulk: Any, receive: Any) -> bytes:
        begun.put_nowait(None)
        await enough.wait()
        return b"served"

    async def act() -> None:
        async with serving(served) as server, AsyncExitStack() as stack:

            async def asks(sender: str) -> asyncio.StreamReader:
                reader, writer = await stack.enter_async_context(server.connected(sender))
                writer.write(GET)
                return reader

            greedy, honest = [], await asks("127.0.0.2")
            await begun.get()
            for _ in range(3):
                greedy.append(await asks("127.0.0.3"))
                await begun.get()
            one_more = await asks("127.0.0.3")
            with pytest.raises((ConnectionError, asyncio.IncompleteReadError)):
                await one_more.readexactly(1)  # whoever has them all takes none of anybody's
            newcomer = await asks("127.0.0.4")
            await begun.get()
            with pytest.raises((ConnectionError, asyncio.IncompleteReadError)):
                await greedy[0].readexactly(1)
            enough.set()
            for reader in (honest, newcomer, *greedy[1:]):
                assert await answer(reader) == (200, b"served")

    run(loop, act())
