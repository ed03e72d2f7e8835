"""Whole requests on their own way past httpx2's objects: the same peers that say anything, and the same bounds as for all others."""

from __future__ import annotations

import asyncio
import gzip
from collections.abc import AsyncIterator, Generator, Mapping
from contextlib import asynccontextmanager

import httpx2
import pytest

from shared.crypto.signing import PartyKey
from shared.service.answers import Answer, BadAnswer, answers_within
from shared.service.peer_connection import WRITE_BYTES
from shared.service.plain_client import Call, PlainClient
from shared.service.signatures import SignedAuth
from shared.service.transport import HttpTransport
from tests.service.http_peer import OK, Peer, abandoned, answering_early, deaf, mute, peer, saying
from tests.service.test_transport import WHOLE
from tests.service.test_transport_hostile import BROKEN

LIMIT = 1000


@asynccontextmanager
async def plain(patience_s: float = 20.0, auth: httpx2.Auth | None = None) -> AsyncIterator[PlainClient]:
    made = PlainClient(HttpTransport(), auth=auth, timeout_s=patience_s)
    try:
        yield made
    finally:
        await made.close()


async def asked(
    mine: PlainClient, there: Peer, method: str = "GET", body: bytes | None = None, headers: Mapping[str, str] | None = None
) -> Answer:  # fmt: skip
    return await mine.ask(
        Call(method, httpx2.URL(f"{there.url}/v1/a?b=c%20d"), body, headers or {}, extensions=answers_within(LIMIT))
    )


async def test_one_connection_serves_many_requests_of_any_length() -> None:
    seen: list[bytes] = []
    bodies = [b"x" * 500, b"", b"y" * 300_000, b"z" * (2 * WRITE_BYTES + 1)]
    async with peer(saying(OK, asked=seen)) as there, plain() as mine:
        for body in bodies:
            answer = await asked(mine, there, "POST", body, {"X-Name": "value"})
            assert (answer.status_code, answer.content, answer.headers["Content-Length"]) == (200, b"ok", "2")
        await asked(mine, there)
    assert there.connections == 1
    assert [request.partition(b"\r\n\r\n")[2] for request in seen] == [*bodies, b""]
    heads = [request.partition(b"\r\n\r\n")[0].split(b"\r\n") for request in seen]
    host = there.url.removeprefix("http://").encode()
    assert heads[0] == [
        b"POST /v1/a?b=c%20d HTTP/1.1", b"host: " + host, b"accept-encoding: identity", b"x-name: value", b"content-length: 500",
    ]  # fmt: skip
    assert b"content-length: 0" in heads[1]
    assert heads[-1] == [b"GET /v1/a?b=c%20d HTTP/1.1", b"host: " + host, b"accept-encoding: identity"]


async def test_the_signature_goes_with_the_head() -> None:
    seen: list[bytes] = []
    auth = SignedAuth(PartyKey.generate(), lambda: 1_700_000_000.0, lambda count: b"n" * count)
    async with peer(saying(OK, asked=seen)) as there, plain(auth=auth) as mine:
        await asked(mine, there, "POST", b"body")
    assert all(seen[0].count(b"\r\n%b: " % name) == 1 for name in (b"content-digest", b"signature-input", b"signature"))


async def test_another_kind_of_signing_still_sees_the_request() -> None:
    class Named(httpx2.Auth):
        def auth_flow(self, request: httpx2.Request) -> Generator[httpx2.Request, httpx2.Response, None]:
            request.headers["x-signed"] = str(len(request.content))
            yield request

    seen: list[bytes] = []
    async with peer(saying(OK, asked=seen)) as there, plain(auth=Named()) as mine:
        await asked(mine, there, "POST", b"body")
    assert b"x-signed: 4" in seen[0]


@pytest.mark.parametrize("name", WHOLE)
async def test_whole_answers(name: str) -> None:
    async with peer(saying(*WHOLE[name])) as there, plain() as mine:
        for _ in range(2):
            answer = await asked(mine, there)
            assert (answer.status_code, answer.content, answer.headers.get("x-more")) == (200, b"hello world", None)
    assert there.connections == 1


@pytest.mark.parametrize("name", BROKEN)
async def test_broken_answers(name: str) -> None:
    said, why = BROKEN[name]
    async with peer(saying(said, close=True)) as there, plain() as mine:
        with pytest.raises(httpx2.RemoteProtocolError, match=why):
            await asked(mine, there)


@pytest.mark.parametrize("body", [b"content-length: 9\r\n\r\nhell", b"transfer-encoding: chunked\r\n\r\n9\r\nhell"])
async def test_half_a_body_is_no_answer(body: bytes) -> None:
    async with peer(saying(b"HTTP/1.1 200 OK\r\n" + body, close=True)) as there, plain() as mine:
        with pytest.raises(httpx2.RemoteProtocolError, match="in the middle of its answer"):
            await asked(mine, there)


@pytest.mark.parametrize("together", [True, False], ids=["in one segment", "later"])
async def test_an_answer_that_nobody_asked_for_is_nobodys(together: bool) -> None:
    planted = b"HTTP/1.1 200 OK\r\ncontent-length: 7\r\n\r\nplanted"
    async with peer(saying(OK + planted) if together else saying(OK, planted)) as there, plain() as mine:
        assert (await asked(mine, there)).content == b"ok"
        await asyncio.sleep(0.05)
        assert (await asked(mine, there)).content == b"ok"
    assert there.connections == 2


TOO_MUCH = {
    "stated": b"content-length: %d\r\n\r\n" % (LIMIT + 1),
    "in chunks": b"transfer-encoding: chunked\r\n\r\n3e9\r\n" + b"x" * (LIMIT + 1),
    "until the connection ends": b"\r\n" + b"x" * (LIMIT + 1),
    "encoded": b"content-encoding: GZIP\r\ncontent-length: 20\r\n\r\n" + gzip.compress(b"")[:20],
}


@pytest.mark.parametrize("name", TOO_MUCH)
async def test_no_more_is_read_than_agreed(name: str) -> None:
    async with peer(saying(b"HTTP/1.1 200 OK\r\n" + TOO_MUCH[name])) as there, plain() as mine:
        for _ in range(2):
            with pytest.raises(BadAnswer):
                await asked(mine, there)
    assert there.connections == 2, "what is left of it is nobody's"


async def test_just_as_much_as_agreed_is_read() -> None:
    async with peer(saying(b"HTTP/1.1 200 OK\r\ncontent-length: %d\r\n\r\n" % LIMIT, bytes(LIMIT))) as there, plain() as mine:  # fmt: skip
        assert (await asked(mine, there)).content == bytes(LIMIT)


async def test_a_peer_that_answers_before_it_has_heard_everything() -> None:
    async with peer(answering_early) as there, plain() as mine:
        for _ in range(2):
            answer = await asked(mine, there, "POST", bytes(64_000_000))
            assert (answer.status_code, answer.content) == (413, b"big")
    assert there.connections == 2, "the peer never heard the rest"


async def test_silence_ends_in_time() -> None:
    async with peer(mute) as there, plain(patience_s=0.1) as mine:
        with pytest.raises(httpx2.ReadTimeout):
            await asked(mine, there)
    async with peer(deaf) as there, plain(patience_s=0.1) as mine:
        with pytest.raises(httpx2.WriteTimeout):
            await asked(mine, there, "POST", bytes(64_000_000))


async def test_an_abandoned_request_ends_its_connection() -> None:
    async with plain() as mine:

        async def ask(url: str) -> bytes:
            return (await mine.ask(Call("GET", httpx2.URL(url)))).content

        assert await abandoned(ask) == 2


async def test_the_answer_to_head_has_no_body() -> None:
    async with peer(saying(b"HTTP/1.1 200 OK\r\ncontent-length: 11\r\n\r\n")) as there, plain() as mine:
        answer = await asked(mine, there, "HEAD")
    assert (answer.status_code, answer.content, answer.headers["content-length"]) == (200, b"", "11")


@pytest.mark.parametrize("value", ["a\r\nx-planted: b", "a\nb", "a\0b"])
async def test_no_header_becomes_two(value: str) -> None:
    seen: list[bytes] = []
    async with peer(saying(OK, asked=seen)) as there, plain() as mine:
        with pytest.raises(httpx2.LocalProtocolError):
            await asked(mine, there, headers={"x-name": value})
        with pytest.raises(httpx2.LocalProtocolError):
            await asked(mine, there, headers={f"x-{value}": "a"})
    assert seen == []


async def test_nobody_there_and_no_address_of_ours() -> None:
    async with peer(saying(OK)) as there:
        pass
    async with plain() as mine:
        with pytest.raises(httpx2.ConnectError):
            await asked(mine, there)
        with pytest.raises(httpx2.UnsupportedProtocol):
            await mine.ask(Call("GET", httpx2.URL("ftp://127.0.0.1/")))
