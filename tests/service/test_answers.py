"""What a hostile peer may answer: bombs, endless bodies, lies about lengths. No more is read than was agreed, and the error says so."""

from __future__ import annotations

import gzip
from collections.abc import AsyncIterator, Callable

import httpx2
import pytest

from shared.errors import Unavailable
from shared.service import http
from shared.service.evidence.emulated import EmulatedProvider
from shared.service.http import Peers

URL = "http://peer.test"
Handler = Callable[[httpx2.Request], httpx2.Response]
BOMB = gzip.compress(bytes(64 << 20))
LIMIT = 1 << 20


class Endless(httpx2.AsyncByteStream):
    """Counts what was taken of it."""

    def __init__(self) -> None:
        self.taken, self.closed = 0, False

    async def __aiter__(self) -> AsyncIterator[bytes]:
        while True:
            self.taken += 65536
            yield bytes(65536)

    async def aclose(self) -> None:
        self.closed = True


async def asked(answer: httpx2.Response, monkeypatch: pytest.MonkeyPatch) -> list[httpx2.Request]:
    """All requests that were made of a peer that always answers so; its answer must be refused."""
    monkeypatch.setattr(http, "MAX_ANSWER_BYTES", LIMIT)
    requests: list[httpx2.Request] = []

    def handle(request: httpx2.Request) -> httpx2.Response:
        requests.append(request)
        return answer

    async with Peers(transports={URL: httpx2.MockTransport(handle)}) as peers:
        with pytest.raises(Unavailable) as refused:
            await peers.peer(URL, "the peer").get_json("/v1/things")
    assert refused.value.code == "peer-unintelligible"
    assert refused.value.remedy
    return requests


async def test_an_endless_answer_is_left_off(monkeypatch: pytest.MonkeyPatch) -> None:
    body = Endless()
    requests = await asked(httpx2.Response(200, stream=body), monkeypatch)
    assert LIMIT < body.taken <= LIMIT + 65536
    assert body.closed
    assert len(requests) == 1, "it would answer the same again"


@pytest.mark.parametrize("encoding", ["gzip", "deflate", "br", "gzip, gzip", "x-unknown", "GZIP"])
async def test_nothing_is_unpacked(encoding: str, monkeypatch: pytest.MonkeyPatch) -> None:
    body = Endless()
    answer = httpx2.Response(200, headers={"content-encoding": encoding}, stream=body)
    requests = await asked(answer, monkeypatch)
    assert body.taken == 0
    assert requests[0].headers["accept-encoding"] == "identity"


async def test_a_stated_length_beyond_the_limit_is_not_begun(monkeypatch: pytest.MonkeyPatch) -> None:
    body = Endless()
    await asked(httpx2.Response(200, headers={"content-length": str(LIMIT + 1)}, stream=body), monkeypatch)
    assert body.taken == 0


async def test_what_is_within_is_read(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http, "MAX_ANSWER_BYTES", 7)
    transport = httpx2.MockTransport(lambda _request: httpx2.Response(200, content=b'{"a":1}'))
    async with Peers(transports={URL: transport}) as peers:
        assert await peers.peer(URL, "the peer").get_json("/v1/things") == {"a": 1}


async def test_the_platforms_enclave_is_kept_within_bounds_too() -> None:
    body = Endless()
    for answer in (
        httpx2.Response(200, stream=body),
        httpx2.Response(200, headers={"content-encoding": "gzip"}, content=BOMB),
    ):
        with pytest.warns(UserWarning, match="EMULATED"):
            provider = EmulatedProvider(
                "http://platform.test/cvms/city", "t", transport=httpx2.MockTransport(lambda _request, a=answer: a)
            )
        with pytest.raises(Unavailable):
            await provider.quote(bytes(64))
        await provider.aclose()
    assert body.taken < LIMIT
