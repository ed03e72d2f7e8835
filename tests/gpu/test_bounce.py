"""Bounce buffers: who gets one, what may be read of it, and that nothing a holder does to one reaches the agent."""

from __future__ import annotations

import asyncio
import errno
import fcntl
import mmap
import os
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from data_holder.bounce import BounceBuffer
from data_holder.doorbell import Answer, Doorbell
from gpu_agent.bounce import BounceBuffers
from shared.errors import BadRequest, ConfigurationError, NotFound, Refused
from shared.service.unix_socket import connected
from shared.wire.bounce import (
    FRAME,
    MAX_ANSWER_BYTES,
    MAX_BUFFER_BYTES,
    MAX_RUNG_BYTES,
    NAME_BYTES,
    REQUEST,
    Rung,
)
from shared.wire.codec import decode
from shared.wire.copy import CopyAck

SIZE = 1 << 20


class Gpu:
    """Takes records by doorbell: those at odd offsets are refused."""

    def __init__(self) -> None:
        self.taken: list[tuple[str, int]] = []
        self.broken = False

    async def take(self, name: str, rung: Rung) -> CopyAck:
        for offset, _ in rung.places:
            if self.broken:
                raise RuntimeError("a bug")
            if offset % 2:
                raise Refused("odd", code="copy-refused")
            self.taken.append((name, offset))
        return CopyAck(index=self.taken[-1][1], received=0, published=False)


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
    async with made.served(path, Gpu().take):
        yield made


async def ask(path: Path, length: int = SIZE) -> BounceBuffer:
    return await asyncio.to_thread(BounceBuffer.ask, path, length)


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
    async with buffers.served(path, Gpu().take):
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
    async with BounceBuffers(3 * SIZE, os.urandom).served(path, Gpu().take):
        async with asyncio.timeout(100):
            buffer = await ask(path)
        assert (buffer.alive, failures) == (True, [])
        buffer.close()


async def test_a_socket_left_behind_makes_room_and_nothing_else_does(tmp_path: Path) -> None:
    path, buffers = tmp_path / "agent.sock", BounceBuffers(SIZE, os.urandom)
    for _ in range(2):
        async with buffers.served(path, Gpu().take):
            (await ask(path)).close()
    path.unlink()
    path.write_text("somebody's file")
    with pytest.raises(ConfigurationError):
        async with buffers.served(path, Gpu().take):
            pass
    assert path.read_text() == "somebody's file"


@asynccontextmanager
async def bell(path: Path, gpu: Gpu) -> AsyncIterator[tuple[BounceBuffer, Doorbell]]:
    async with BounceBuffers(SIZE, os.urandom).served(path, gpu.take):
        buffer = await ask(path)
        with buffer.bell() as made:
            yield buffer, made
        buffer.close()


def ring(bell: Doorbell, *offsets: int) -> Answer:
    return bell.ring("gpu-0", "holder-north", [(offset, 8) for offset in offsets], timeout_s=100)


async def index(answer: Answer) -> int | None:
    said = await answer
    return None if said is None else decode(CopyAck, said).index


async def test_places_are_taken_in_the_order_in_which_they_were_rung(tmp_path: Path) -> None:
    gpu = Gpu()
    async with bell(tmp_path / "agent.sock", gpu) as (buffer, made):
        answers = [ring(made, at, at + 2) for at in range(0, 400, 4)]  # all before the first answer
        assert [await index(answer) for answer in answers] == list(range(2, 400, 4))
        assert gpu.taken == [(buffer.name, at) for at in range(0, 400, 2)]
        assert made.settled


async def test_nothing_is_taken_behind_what_was_refused(tmp_path: Path) -> None:
    gpu = Gpu()
    async with bell(tmp_path / "agent.sock", gpu) as (buffer, made):
        answers = [ring(made, at) for at in (0, 2, 3, 4, 6)]
        assert [await index(answer) for answer in answers] == [0, 2, None, None, None]
        assert not made.open
        assert await index(ring(made, 8)) is None  # not even sent
        made.again()
        assert await index(ring(made, 10)) == 10
        assert [at for _, at in gpu.taken] == [0, 2, 10]
        gpu.broken = True
        assert await index(ring(made, 12)) is None
        gpu.broken = False
        made.again()
        assert await index(ring(made, 14)) == 14
        assert buffer.alive


@pytest.mark.parametrize("said", [FRAME.pack(MAX_RUNG_BYTES + 1), FRAME.pack(3) + b"abc", FRAME.pack(1) + b"\xa0"])
async def test_what_is_no_frame_ends_its_own_connection_only(tmp_path: Path, said: bytes) -> None:
    path, gpu = tmp_path / "agent.sock", Gpu()
    async with bell(path, gpu) as (_, made):
        connection = await asyncio.to_thread(connected, path, 5.0)
        connection.sendall(REQUEST.pack(0))
        assert await asyncio.to_thread(connection.recv, 1) == b""
        connection.close()
        other = await asyncio.to_thread(connected, path, 5.0)
        other.sendall(said)
        other.shutdown(socket.SHUT_WR)
        assert await asyncio.to_thread(other.recv, 1) == b""
        other.close()
        assert await index(ring(made, 4)) == 4


async def test_a_buffer_whose_bell_says_what_it_may_not_is_given_back(tmp_path: Path) -> None:
    ours, theirs = socket.socketpair()
    ours.setblocking(False)
    for said in (b"\x00\x00\x00\x00", FRAME.pack(MAX_ANSWER_BYTES + 1), b""):
        buffer = BounceBuffer(ours.dup(), bytes(NAME_BYTES), mmap.mmap(-1, 4096))
        with buffer.bell() as made:
            if said != bytes(4):
                waiting = ring(made, 2)
                assert await asyncio.to_thread(theirs.recv, 4096)
            theirs.sendall(said) if said else theirs.close()
            if said != bytes(4):
                assert await waiting is None
            for _ in range(2000):
                if not made.open:
                    break
                await asyncio.sleep(0.005)
            assert not made.open
        assert not buffer.alive
    ours.close()


async def test_no_answer_in_time_is_none(tmp_path: Path) -> None:
    ours, theirs = socket.socketpair()
    ours.setblocking(False)
    made = Doorbell(ours, 0)
    assert await made.ring("gpu-0", "holder-north", [(0, 8)], timeout_s=0.001) is None
    assert not made.open
    assert not made.settled
    made.close()
    for end in (ours, theirs):
        end.close()
