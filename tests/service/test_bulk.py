"""Bodies that are read past the parser: every byte where it belongs, none too many, and the connection is what it was."""

from __future__ import annotations

import asyncio
import os
import random
from functools import partial
from hashlib import sha256
from typing import Any

import pytest

from shared.service.bulk import LEAST_BYTES, BulkBody, stated_length
from shared.service.connection import MAX_HEAD_BYTES
from tests.service.bulk_server import GET, all_of, answer, each_loop, post, run, serving


async def either(bulk: BulkBody | None, receive: Any, piece: int = 70_000) -> bytes:
    return b"next" if bulk is None else await all_of(bulk, receive, piece=piece)


def _cut(data: bytes, seed: int) -> list[bytes]:
    draw, at, found = random.Random(seed), 0, []
    while at < len(data):
        step = draw.choice([1, 17, 3000, 65_536, 300_000])
        found.append(data[at : at + step])
        at += step
    return found


@each_loop
@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize("piece", [1000, 65_536, 10_000_000])
def test_however_it_is_cut_and_read_it_is_the_same(loop: str, seed: int, piece: int) -> None:
    """And what follows is the next request, though the body looks like several."""
    bodies = [(GET * 40_000)[: LEAST_BYTES + 999 * seed], os.urandom(1_000_003)]
    sent = post(bodies[0]) + GET + post(bodies[1]) + GET

    async def act() -> None:
        async with serving(partial(either, piece=piece)) as server, server.connected() as (reader, writer):
            for part in _cut(sent, seed):
                writer.write(part)
                await writer.drain()
                if seed % 2:
                    await asyncio.sleep(0)
            for expected in (sha256(bodies[0]).digest(), b"next", sha256(bodies[1]).digest(), b"next"):
                assert await answer(reader) == (200, expected)
        assert server.faults == []

    run(loop, act())


async def enough(bulk: BulkBody | None, receive: Any, read: int) -> bytes:
    """A service that answers once it has read some of a body."""
    if bulk is None:
        return b"next"
    await bulk.into(memoryview(bytearray(read)))
    return b"enough"


@each_loop
@pytest.mark.parametrize("read", [0, 10, LEAST_BYTES, 500_000])
def test_who_answers_early_wants_no_more_and_the_next_request_is_heard(loop: str, read: int) -> None:
    async def act() -> None:
        async with serving(partial(enough, read=read)) as server, server.connected() as (reader, writer):
            writer.write(post(os.urandom(3_000_000)) + GET)
            assert await answer(reader) == (200, b"enough")
            assert await answer(reader) == (200, b"next")
            writer.write(post(os.urandom(600_000)) + GET)
            assert [await answer(reader) for _ in range(2)] == [(200, b"enough"), (200, b"next")]

    run(loop, act())


@each_loop
def test_a_request_whose_head_came_early_keeps_its_body(loop: str) -> None:
    """The answer to the one before it says nothing of it."""
    body, go = os.urandom(900_000), asyncio.Event()

    async def later(bulk: BulkBody | None, receive: Any) -> bytes:
        if bulk is None:
            await go.wait()
        return await either(bulk, receive)

    async def act() -> None:
        async with serving(later) as server, server.connected() as (reader, writer):
            writer.write(GET + post(body) + GET)
            await asyncio.sleep(0.05)
            go.set()
            assert [await answer(reader) for _ in range(3)] == [
                (200, b"next"), (200, sha256(body).digest()), (200, b"next"),
            ]  # fmt: skip

    run(loop, act())


@each_loop
def test_nothing_arrives_while_nobody_reads(loop: str) -> None:
    size, go = 64_000_000, asyncio.Event()

    async def slow(bulk: BulkBody | None, receive: Any) -> bytes:
        assert bulk is not None
        await bulk.into(memoryview(bytearray(1_000_000)))
        await go.wait()
        return await all_of(bulk, receive)

    async def act() -> None:
        async with serving(slow) as server, server.connected() as (reader, writer):
            body = bytes(size)
            writer.write(post(body))
            before = -1
            while before != (waiting := writer.transport.get_write_buffer_size()):
                before = waiting
                await asyncio.sleep(0.2)
            assert waiting > size // 2, "the rest waits at the client"
            go.set()
            assert await answer(reader) == (200, sha256(body[1_000_000:]).digest())

    run(loop, act())


@each_loop
@pytest.mark.parametrize("size", [500_000, 3_000_000, 3_100_000])
@pytest.mark.parametrize("read", [0, 200_000])
def test_the_end_of_an_unwanted_body_is_no_head(loop: str, size: int, read: int) -> None:
    """However much of it comes last: who was refused early, and asks for something else a while later, is heard."""

    async def act() -> None:
        async with serving(partial(enough, read=read)) as server, server.connected() as (reader, writer):
            writer.write(post(bytes(size)))
            assert await answer(reader) == (200, b"enough")
            await writer.drain()
            await asyncio.sleep(0.1)
            writer.write(GET)
            assert await answer(reader) == (200, b"next")

    run(loop, act())


@each_loop
@pytest.mark.parametrize("before", [b"", GET, post(bytes(500_000))], ids=["first", "after another", "after a body"])
def test_an_endless_head_is_one_wherever_it_begins(loop: str, before: bytes) -> None:
    async def some(bulk: BulkBody | None, receive: Any) -> bytes:
        return b"enough"

    async def act() -> None:
        async with serving(some) as server, server.connected() as (reader, writer):
            writer.write(before + b"GET / HTTP/1.1\r\nx: ")
            if before:
                assert await answer(reader) == (200, b"enough")
            await asyncio.sleep(0.1)
            for count in (
                2 * MAX_HEAD_BYTES - 1000,
                2000,
            ):  # nothing is left unread then: that would reset the connection
                writer.write(b"y" * count)
                await asyncio.sleep(0.1)
            status, problem = await answer(reader)
            assert (status, b"head-too-large" in problem) == (431, True)

    run(loop, act())


@pytest.mark.parametrize(
    "lengths",
    [
        "content-length: 70000\r\ncontent-length: 70001", "content-length: 70000\r\ncontent-length: 70000",
        "content-length: 70000\r\ntransfer-encoding: chunked", "transfer-encoding: chunked\r\ncontent-length: 70000",
        "content-length: +70000", "content-length: 70000, 70000", "content-length: 99999999999999999999999",
    ],
)  # fmt: skip
def test_a_length_that_may_be_read_in_two_ways_is_none(lengths: str) -> None:
    async def act() -> None:
        async with serving(either) as server, server.connected() as (reader, writer):
            writer.write(f"POST / HTTP/1.1\r\nhost: here\r\n{lengths}\r\n\r\n".encode() + bytes(100))
            status, problem = await answer(reader)
            assert (status, b"malformed-request" in problem) == (400, True)
            assert await reader.read() == b""

    run("uvloop", act())


CHUNKED = b"POST / HTTP/1.1\r\nhost: here\r\ntransfer-encoding: chunked\r\n\r\n"


@pytest.mark.parametrize(
    ("request_", "expected"),
    [
        (post(bytes(LEAST_BYTES - 1)), LEAST_BYTES - 1),
        (post(bytes(LEAST_BYTES), "expect: 100-continue"), LEAST_BYTES),
        (CHUNKED + b"11170\r\n" + bytes(70_000) + b"\r\n0\r\n\r\n", 70_000),
        (GET, 0),
    ],
    ids=["short", "to be allowed first", "chunks", "none"],
)
def test_other_bodies_go_through_the_parser(request_: bytes, expected: int) -> None:
    async def usual(bulk: BulkBody | None, receive: Any) -> bytes:
        assert bulk is None
        length, more = 0, True
        while more:
            message = await receive()
            length, more = length + len(message["body"]), message["more_body"]
        return str(length).encode()

    async def act() -> None:
        async with serving(usual) as server, server.connected() as (reader, writer):
            writer.write(request_)
            if b"expect" in request_:
                assert (await reader.readuntil(b"\r\n\r\n")).startswith(b"HTTP/1.1 100")
            assert await answer(reader) == (200, str(expected).encode())

    run("uvloop", act())


@each_loop
def test_who_wants_no_bulk_reads_as_ever(loop: str) -> None:
    async def usual(bulk: BulkBody | None, receive: Any) -> bytes:
        hasher, more = sha256(), True
        while more:
            message = await receive()
            hasher.update(message["body"])
            more = message["more_body"]
        return hasher.digest() if bulk is not None else b"next"

    async def act() -> None:
        body = os.urandom(2_000_000)
        async with serving(usual) as server, server.connected() as (reader, writer):
            writer.write(post(body) + GET)
            assert [await answer(reader) for _ in range(2)] == [(200, sha256(body).digest()), (200, b"next")]

    run(loop, act())


def test_a_length_beside_chunks_is_none() -> None:
    assert stated_length([(b"content-length", b"70000")]) == 70_000
    for headers in ([], [(b"content-length", b"7e4")], [(b"content-length", b"7"), (b"transfer-encoding", b"chunked")]):
        assert stated_length(headers) == 0
