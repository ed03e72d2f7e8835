"""Who reads a body past the parser when the other side is gone, late, or slow; and who stops reading."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Coroutine
from hashlib import sha256
from typing import Any

import pytest
from starlette.requests import ClientDisconnect

from shared.service import connection
from shared.service.bulk import LEAST_BYTES, BulkBody
from tests.service.bulk_server import GET, all_of, answer, each_loop, post, run, serving


@each_loop
def test_who_waits_for_a_client_that_is_gone_hears_of_it(loop: str) -> None:
    async def act() -> None:
        async with serving(all_of) as server:
            for sent in (LEAST_BYTES // 2, 2_000_000):
                async with server.connected() as (_, writer):
                    writer.write(post(bytes(3_000_000))[:sent])
                    await writer.drain()
                    await asyncio.sleep(0.05)
                await server.fault.wait()
                server.fault.clear()
            async with server.connected() as (_, writer):  # it sends no more, and listens
                writer.write(post(bytes(3_000_000))[:1_000_000])
                writer.write_eof()
                await server.fault.wait()
        assert [type(fault) for fault in server.faults] == [ClientDisconnect] * 3

    run(loop, act())


def impatient(monkeypatch: pytest.MonkeyPatch, least: int) -> None:
    """After a moment of grace a body brings so many bytes a second."""
    for name, value in (("TICK_S", 0.05), ("GRACE_S", 0.1), ("MIN_RATE", least)):
        monkeypatch.setattr(connection, name, value)


@each_loop
def test_who_brings_too_little_is_not_waited_for(loop: str, monkeypatch: pytest.MonkeyPatch) -> None:
    impatient(monkeypatch, 10_000_000)

    async def act() -> None:
        async with serving(all_of) as server, server.connected() as (reader, writer):
            writer.write(post(bytes(3_000_000))[:400_000])
            status, problem = await answer(reader)
            assert (status, b"request-too-slow" in problem) == (408, True)
            assert await reader.read() == b""
            assert [type(fault) for fault in server.faults] == [ClientDisconnect]

    run(loop, act())


@each_loop
def test_who_has_brought_what_nobody_wanted_is_waited_for_as_long_as_anybody(
    loop: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """While it still brings that, however slowly, the connection does not rest; then the next head is due in time."""
    reading = asyncio.Event()
    monkeypatch.setattr(connection, "HEAD_S", 0.3)

    async def some(bulk: BulkBody | None, receive: Any) -> bytes:
        assert bulk is not None
        reading.set()
        await bulk.into(memoryview(bytearray(150_000)))
        assert bulk.begun
        return b"enough"

    async def act() -> None:
        async with serving(some, keep_alive_s=1) as server, server.connected() as (reader, writer):
            whole = post(bytes(400_000))
            writer.write(whole[:100_000])
            await reading.wait()
            writer.write(whole[100_000:200_000])
            assert await answer(reader) == (200, b"enough")
            for at in range(200_000, len(whole), 10_000):
                await asyncio.sleep(0.07)
                writer.write(whole[at : at + 10_000])
            status, problem = await answer(reader)
            assert (status, b"head comes within" in problem) == (408, True)

    run(loop, act())


@each_loop
def test_who_brings_enough_is_waited_for(loop: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """What comes past the parser counts: fifty times what is asked for, after a beginning of next to nothing."""
    impatient(monkeypatch, 100_000)

    async def act() -> None:
        body = os.urandom(2_000_000)
        async with serving(all_of) as server, server.connected() as (reader, writer):
            whole = post(body)
            writer.write(whole[:1000])
            for at in range(1000, len(whole), 50_000):
                await asyncio.sleep(0.01)
                writer.write(whole[at : at + 50_000])
            assert await answer(reader) == (200, sha256(body).digest())

    run(loop, act())


@each_loop
def test_who_reads_on_when_the_connection_is_gone_hears_of_it(loop: str) -> None:
    begun, gone = asyncio.Event(), asyncio.Event()

    async def busy(bulk: BulkBody | None, receive: Any) -> bytes:
        assert bulk is not None
        await bulk.into(memoryview(bytearray(500_000)))
        begun.set()
        await gone.wait()
        return await all_of(bulk, receive)

    async def act() -> None:
        async with serving(busy) as server, server.connected() as (_, writer):
            writer.write(post(bytes(3_000_000)))
            await begun.wait()
            for one in list(server.connections):
                one.transport.abort()
            await asyncio.sleep(0.05)
            gone.set()
            await server.fault.wait()
            assert [type(fault) for fault in server.faults] == [ClientDisconnect]

    run(loop, act())


@each_loop
def test_behind_the_body_the_end_of_the_connection_is_heard(loop: str) -> None:
    read, ended = asyncio.Event(), asyncio.Event()

    async def work(bulk: BulkBody | None, receive: Any) -> bytes:
        found = await all_of(bulk, receive)
        read.set()
        await ended.wait()
        return found

    async def act() -> None:
        async with serving(work) as server:
            async with server.connected() as (_, writer):
                writer.write(post(bytes(900_000)))
                await read.wait()
            for _ in range(1000):
                if not server.connections:
                    break
                await asyncio.sleep(0.01)
            assert not server.connections
            ended.set()

    run(loop, act())


@each_loop
def test_a_reader_that_stops_leaves_the_connection_whole(loop: str) -> None:
    stopped, sent = asyncio.Event(), asyncio.Event()

    async def stopping(bulk: BulkBody | None, receive: Any) -> bytes:
        if bulk is None:
            return b"next"
        reading = asyncio.create_task(_into(bulk, 300_000))
        await asyncio.sleep(0.1)
        reading.cancel()
        await asyncio.wait([reading])
        stopped.set()
        await sent.wait()
        with pytest.raises(ValueError, match="are left"):
            await bulk.into(memoryview(bytearray(bulk.left + 1)))
        return b"gave up"

    async def act() -> None:
        async with serving(stopping) as server, server.connected() as (reader, writer):
            whole = post(bytes(900_000))
            writer.write(whole[:200_000])
            await stopped.wait()
            writer.write(whole[200_000:] + GET)
            await asyncio.sleep(0.05)
            sent.set()
            assert await answer(reader) == (200, b"gave up")
            assert await answer(reader) == (200, b"next")
        assert server.faults == []

    run(loop, act())


def _into(bulk: BulkBody, count: int) -> Coroutine[Any, Any, None]:
    return bulk.into(memoryview(bytearray(count)))
