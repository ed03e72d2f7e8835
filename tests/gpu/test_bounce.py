"""Bounce buffers: who gets one, what may be read of it, and that nothing a holder does to one reaches the agent."""

from __future__ import annotations

import asyncio
import errno
import fcntl
import os
import socket
import threading
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from data_holder.bounce import BounceBuffer
from gpu_agent.bounce import BounceBuffers
from shared.errors import BadRequest, ConfigurationError, NotFound
from shared.service.unix_socket import connected
from shared.wire.bounce import (
    MAX_BUFFER_BYTES,
    NAME_BYTES,
    REQUEST,
)
from tests.gpu.bell_world import SIZE, Gpu, ask


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return (
        tmp_path
        / ("a folder whose name is longer than an address of a Unix socket may be, " * 2).strip()
        / "agent.sock"
    )


@pytest.fixture
async def buffers(path: Path) -> AsyncIterator[BounceBuffers]:
    path.parent.mkdir()
    made = BounceBuffers(3 * SIZE, os.urandom)
    async with made.served(path, Gpu()):
        yield made


async def gone(buffers: BounceBuffers, name: str) -> None:
    for _ in range(2000):
        try:
            buffers.record(name, 0, 1)
        except NotFound:
            return
        await asyncio.sleep(0.005)
    raise AssertionError("the buffer outlives its connection")


async def test_both_sides_see_the_same_bytes_until_the_connection_ends(buffers: BounceBuffers, path: Path) -> None:
    mine = await ask(path)
    mine.memory[100:105] = b"hello"
    seen = buffers.record(mine.name, 100, 5)
    assert (bytes(seen), mine.alive) == (b"hello", True)
    assert seen.readonly
    assert os.stat(path).st_mode & 0o777 == 0o600
    with pytest.raises(BadRequest):
        buffers.record(mine.name, SIZE - 4, 5)
    mine.close()
    await gone(buffers, mine.name)
    assert bytes(seen) == b"hello"  # a copy under way is not cut off


async def test_a_buffer_cannot_be_cut_off_under_the_agent(buffers: BounceBuffers, path: Path) -> None:
    connection = await asyncio.to_thread(connected, path, 5.0)
    connection.sendall(REQUEST.pack(SIZE))
    name, (descriptor,), _, _ = await asyncio.to_thread(socket.recv_fds, connection, NAME_BYTES, 1)
    for length in (0, 4096, 2 * SIZE):
        with pytest.raises(PermissionError):
            os.ftruncate(descriptor, length)
    with pytest.raises(PermissionError):
        fcntl.fcntl(descriptor, fcntl.F_ADD_SEALS, fcntl.F_SEAL_WRITE)
    os.close(descriptor)
    assert bytes(buffers.record(name.hex(), SIZE - 2, 2)) == bytes(2)
    connection.close()


@pytest.mark.parametrize("length", [0, MAX_BUFFER_BYTES + 1, 3 * SIZE + 1])
async def test_nobody_gets_more_than_there_may_be(buffers: BounceBuffers, path: Path, length: int) -> None:
    connection = await asyncio.to_thread(connected, path, 5.0)
    connection.sendall(REQUEST.pack(length))
    assert await asyncio.to_thread(connection.recv, 1) == b""
    connection.close()
    (await ask(path)).close()  # others are served


async def test_all_buffers_together_are_bounded(buffers: BounceBuffers, path: Path) -> None:
    held = [await ask(path) for _ in range(3)]
    with pytest.raises(EOFError):
        await ask(path)
    held[0].close()
    await gone(buffers, held[0].name)
    held[0] = await ask(path)
    for buffer in held:
        buffer.close()


async def test_connections_are_bounded_and_who_has_a_buffer_keeps_it(path: Path) -> None:
    """Each costs the agent a descriptor and a task, also before it says how much it wants."""
    path.parent.mkdir()
    buffers = BounceBuffers(3 * SIZE, os.urandom, connections=3)
    async with buffers.served(path, Gpu()):
        mine = await ask(path)
        silent = [await asyncio.to_thread(connected, path, 5.0) for _ in range(2)]
        for _ in range(100):
            with pytest.raises((EOFError, OSError)):
                await ask(path)
        assert len(buffers.record(mine.name, 0, 8)) == 8
        silent.pop().close()
        async with asyncio.timeout(100):
            again = await _sooner_or_later(path)
        assert mine.alive
        for held in (mine, again, *silent):
            held.close()


async def _sooner_or_later(path: Path) -> BounceBuffer:
    while True:
        try:
            return await ask(path)
        except (EOFError, OSError):
            await asyncio.sleep(0.005)


async def test_an_agent_that_had_no_descriptor_left_gives_buffers_again(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It gave none any more, to nobody, until it was started again; and said so nowhere."""
    loop, failures = asyncio.get_running_loop(), [OSError(errno.EMFILE, "Too many open files")] * 2
    accept = loop.sock_accept

    async def short(listener: socket.socket) -> Any:
        if failures:
            raise failures.pop()
        return await accept(listener)

    monkeypatch.setattr(loop, "sock_accept", short)
    monkeypatch.setattr("gpu_agent.bounce.AGAIN_S", 0.0)
    path.parent.mkdir()
    async with BounceBuffers(3 * SIZE, os.urandom).served(path, Gpu()):
        async with asyncio.timeout(100):
            buffer = await ask(path)
        assert (buffer.alive, failures) == (True, [])
        buffer.close()


async def test_a_socket_left_behind_makes_room_and_nothing_else_does(tmp_path: Path) -> None:
    path, buffers = tmp_path / "agent.sock", BounceBuffers(SIZE, os.urandom)
    for _ in range(2):
        async with buffers.served(path, Gpu()):
            (await ask(path)).close()
    path.unlink()
    path.write_text("somebody's file")
    with pytest.raises(ConfigurationError):
        async with buffers.served(path, Gpu()):
            pass
    assert path.read_text() == "somebody's file"


async def test_a_connection_that_finds_no_thread_ends_no_other(
    buffers: BounceBuffers, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It ended everybody's, and nobody got a buffer until the agent was started again."""
    mine, start = await ask(path), threading.Thread.start

    def none_left(thread: threading.Thread) -> None:
        if thread.name.startswith("doorbell"):
            raise RuntimeError("can't start new thread")
        start(thread)

    with monkeypatch.context() as fewer:
        fewer.setattr(threading.Thread, "start", none_left)
        other = await ask(path)
        await gone(buffers, other.name)
    assert mine.alive
    assert len(buffers.record(mine.name, 0, 8)) == 8
    again = await ask(path)
    for held in (mine, other, again):
        held.close()


async def test_who_asks_an_agent_that_accepts_nobody_any_more_is_refused_at_once(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    loop = asyncio.get_running_loop()

    async def broken(_: socket.socket) -> Any:
        raise RuntimeError("as a bug would")

    monkeypatch.setattr(loop, "sock_accept", broken)
    path.parent.mkdir()
    async with BounceBuffers(3 * SIZE, os.urandom).served(path, Gpu()):
        await asyncio.sleep(0)  # until it accepts
        with pytest.raises(ConnectionRefusedError):
            await ask(path)
