"""Our HTTP client's way to peers that say anything, cut anywhere, or nothing: no answer is taken for another's, nothing grows."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import httpx2
import pytest

from shared.service.peer_connection import HIGH_WATER, MAX_HEAD_BYTES, WRITE_BYTES, PeerConnection
from tests.service.http_peer import OK, abandoned, answering_early, client, deaf, heard, mute, peer, saying

BROKEN = {
    "no HTTP": (b"SSH-2.0-OpenSSH_9.2\r\n", "no HTTP/1.1"),
    "two lengths": (b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\ncontent-length: 3\r\n\r\nokk", "no HTTP/1.1"),
    "length and chunks": (b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\ntransfer-encoding: chunked\r\n\r\n0\r\n\r\n", "no HTTP/1.1"),
    "another protocol": (b"HTTP/1.1 101 Switching\r\nconnection: upgrade\r\nupgrade: x\r\n\r\n", "no HTTP/1.1"),
    "an endless header": (b"HTTP/1.1 200 OK\r\nx: " + b"y" * (MAX_HEAD_BYTES + 300_000), "at most"),
    "endless interim answers": (b"HTTP/1.1 100 Continue\r\n\r\n" * 100, "unasked"),
    "half a head": (b"HTTP/1.1 200 OK\r\nconte", "without an answer"),
    "nothing": (b"", "without an answer"),
}  # fmt: skip


@pytest.mark.parametrize("name", BROKEN)
async def test_broken_answers(name: str) -> None:
    said, why = BROKEN[name]
    async with peer(saying(said, close=True)) as there, client() as mine:
        with pytest.raises(httpx2.RemoteProtocolError, match=why):
            await mine.get(there.url)


@pytest.mark.parametrize("body", [b"content-length: 9\r\n\r\nhell", b"transfer-encoding: chunked\r\n\r\n9\r\nhell"])
async def test_half_a_body_is_no_answer(body: bytes) -> None:
    async with peer(saying(b"HTTP/1.1 200 OK\r\n" + body, close=True)) as there, client() as mine:
        with pytest.raises(httpx2.RemoteProtocolError, match="in the middle of its answer"):
            await mine.get(there.url)


@pytest.mark.parametrize("together", [True, False], ids=["in one segment", "later"])
async def test_an_answer_that_nobody_asked_for_is_nobodys(together: bool) -> None:
    """A second answer on a kept connection would be read by whoever asks next."""
    planted = b"HTTP/1.1 200 OK\r\ncontent-length: 7\r\n\r\nplanted"
    async with peer(saying(OK + planted) if together else saying(OK, planted)) as there, client() as mine:
        assert (await mine.get(there.url)).content == b"ok"
        await asyncio.sleep(0.05)
        assert (await mine.get(there.url)).content == b"ok"
    assert there.connections == 2


async def test_a_peer_that_answers_before_it_has_heard_everything() -> None:
    async def endless() -> AsyncIterator[bytes]:
        while True:
            yield b"z" * 1_000_000
            await asyncio.sleep(0)

    async with peer(answering_early) as there, client() as mine:
        answer = await mine.post(there.url, content=endless())
        assert (answer.status_code, answer.content) == (413, b"big")


async def test_whoever_reads_slowly_makes_the_peer_wait() -> None:
    size, sent = 64 * HIGH_WATER, [0]

    async def handle(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await heard(reader)
        writer.write(b"HTTP/1.1 200 OK\r\ncontent-length: %d\r\n\r\n" % size)
        while sent[0] < size:
            writer.write(bytes(HIGH_WATER // 4))
            await writer.drain()
            sent[0] += HIGH_WATER // 4

    async with peer(handle) as there, client() as mine, mine.stream("GET", there.url) as answer:
        before = -1
        while before < sent[0]:
            before = sent[0]
            await asyncio.sleep(0.2)
        assert sent[0] < size / 2, "the rest waits at the peer"
        got = 0
        async for piece in answer.aiter_raw():
            got += len(piece)
    assert got == size


async def test_silence_ends_in_time() -> None:
    async with peer(mute) as there, client(patience_s=0.1) as mine:
        with pytest.raises(httpx2.ReadTimeout):
            await mine.get(there.url)
    async with peer(deaf) as there, client(patience_s=0.1) as mine:
        with pytest.raises(httpx2.WriteTimeout):
            await mine.post(there.url, content=bytes(64_000_000))


class Drip(asyncio.Transport):
    """A transport whose peer takes `step` bytes every 30 ms."""

    def __init__(self, connection: PeerConnection, step: int) -> None:
        super().__init__()
        self._connection, self._step, self._waiting, self.taken = connection, step, 0, 0
        asyncio.get_running_loop().call_later(0.03, self._take)

    def write(self, data: bytes | bytearray | memoryview) -> None:
        self._waiting += len(data)
        self._connection.pause_writing()

    def get_write_buffer_size(self) -> int:
        return self._waiting

    def _take(self) -> None:
        step = min(self._step, self._waiting)
        self._waiting, self.taken = self._waiting - step, self.taken + step
        if not self._waiting:
            self._connection.resume_writing()
        asyncio.get_running_loop().call_later(0.03, self._take)


async def pieces(size: int) -> AsyncIterator[bytes]:
    yield bytes(size)


async def test_a_peer_that_takes_a_little_at_a_time_is_slow_and_not_silent() -> None:
    """However long all of a write takes: some of it goes within the time allowed, again and again."""
    connection = PeerConnection()
    transport = Drip(connection, WRITE_BYTES // 16)
    connection.connection_made(transport)
    await connection.ask(b"head", pieces(2 * WRITE_BYTES), chunked=False, wait_s=0.1)
    assert transport.taken == 2 * WRITE_BYTES + len(b"head")


async def test_a_peer_that_takes_nothing_more_is_silent() -> None:
    connection = PeerConnection()
    connection.connection_made(Drip(connection, 0))
    with pytest.raises(httpx2.WriteTimeout):
        await connection.ask(b"head", pieces(2 * WRITE_BYTES), chunked=False, wait_s=0.1)


async def test_an_abandoned_request_ends_its_connection() -> None:
    """Its answer would be the next one's otherwise."""
    async with client() as mine:

        async def ask(url: str) -> bytes:
            return (await mine.get(url)).content

        assert await abandoned(ask) == 2


async def test_a_stream_left_in_the_middle_ends_its_connection() -> None:
    async with peer(saying(b"HTTP/1.1 200 OK\r\ncontent-length: 4\r\n\r\nab", b"cd")) as there, client() as mine:
        async with mine.stream("GET", there.url) as answer:
            assert await anext(aiter(answer.aiter_raw())) == b"ab"
        assert (await mine.get(there.url)).content == b"abcd"
    assert there.connections == 2
