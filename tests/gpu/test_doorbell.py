"""Doorbells of bounce buffers: what was rung is taken in order or not at all, by a thread of its own."""

from __future__ import annotations

import asyncio
import mmap
import os
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from data_holder.bounce import BounceBuffer
from data_holder.doorbell import Doorbell
from gpu_agent.bounce import BounceBuffers
from shared.service.unix_socket import connected
from shared.wire.bounce import (
    FRAME,
    MAX_ANSWER_BYTES,
    MAX_RUNG_BYTES,
    NAME_BYTES,
    REQUEST,
    BellAck,
    pack_names,
    pack_rung,
)
from tests.gpu.bell_world import SIZE, Gpu, ask

NAMES = pack_names("gpu-0", "holder-north")


@asynccontextmanager
async def bell(path: Path, gpu: Gpu) -> AsyncIterator[tuple[BounceBuffer, Doorbell]]:
    async with BounceBuffers(2 * SIZE, os.urandom).served(path, gpu):
        buffer = await ask(path)
        with buffer.bell() as made:
            yield buffer, made
        buffer.close()


def ring(bell: Doorbell, *offsets: int) -> bool:
    return bell.ring(NAMES, [(offset, 8) for offset in offsets])


async def answered(bell: Doorbell, count: int) -> list[int | None]:
    """The next so many answers: the last record's offset, None: not taken."""
    found: list[int | None] = []
    while len(found) < count and not bell.silent:
        said = await asyncio.to_thread(bell.answers, 0.05)
        found += [None if answer is None else answer.index for answer in said]
    return found


async def says(connection: socket.socket, frame: bytes, times: int) -> None:
    """And reads nothing."""
    for _ in range(times):
        try:
            connection.send(frame)
        except BlockingIOError:  # the agent is slower
            await asyncio.sleep(0.001)


async def gone(buffers: BounceBuffers, name: str) -> None:
    """Until the agent has a buffer no more, whose holder hung up."""
    for _ in range(2000):
        if name not in buffers._buffers:
            return
        await asyncio.sleep(0.005)
    raise AssertionError("it is there yet")


async def test_places_are_taken_in_the_order_in_which_they_were_rung(tmp_path: Path) -> None:
    gpu = Gpu()
    async with bell(tmp_path / "agent.sock", gpu) as (buffer, made):
        assert all(ring(made, at, at + 2) for at in range(0, 400, 4))  # all before the first answer
        assert await answered(made, 100) == list(range(2, 400, 4))
        assert gpu.taken == [(buffer.name, at) for at in range(0, 400, 2)]
        assert made.settled


async def test_a_bell_waits_for_the_gpu_and_says_how_long(tmp_path: Path) -> None:
    gpu = Gpu()
    async with bell(tmp_path / "agent.sock", gpu) as (_, made):
        gpu.there.clear()
        assert made.ring(NAMES, [(0, 8)], 5_000)
        assert ring(made, 2)  # behind it, with no wait of its own
        await gpu.waits()
        await asyncio.sleep(0.05)
        assert gpu.taken == []
        gpu.there.set()
        found: list[BellAck | None] = []
        while len(found) < 2:
            found += await asyncio.to_thread(made.answers, 0.05)
        first, second = found
        assert first is not None
        assert second is not None
        assert 50_000 <= first.waited_us < 5_000_000
        assert (second.waited_us, gpu.waited) == (0, [5_000])


async def test_who_waits_for_the_gpu_holds_up_nobody_else(tmp_path: Path) -> None:
    gpu, path = Gpu(), tmp_path / "agent.sock"
    async with bell(path, gpu) as (_, first):
        gpu.there.clear()
        assert first.ring(NAMES, [(0, 8)], 5_000)
        await gpu.waits()
        other = await ask(path)
        with other.bell() as made:
            assert ring(made, 2)
            assert await answered(made, 1) == [2]
        other.close()
        gpu.there.set()
        assert await answered(first, 1) == [0]


async def test_who_hangs_up_while_the_gpu_is_away_brings_nothing(tmp_path: Path) -> None:
    gpu, path, buffers = Gpu(), tmp_path / "agent.sock", BounceBuffers(SIZE, os.urandom)
    async with buffers.served(path, gpu):
        gpu.there.clear()
        buffer = await ask(path)
        with buffer.bell() as made:
            assert made.ring(NAMES, [(0, 8)], 5_000)
            await gpu.waits()
            assert ring(made, 2)  # it lies there unread, before the end of the connection
        assert not buffer.alive  # a ring without an answer: it went with the visit
        gpu.there.set()
        await gone(buffers, buffer.name)
        assert gpu.taken == []


async def test_what_was_rung_before_its_holder_hung_up_is_not_looked_at(tmp_path: Path) -> None:
    """It brings that another way. What the GPU was just at is taken, for it is too late to ask."""
    gpu, buffers = Gpu(), BounceBuffers(SIZE, os.urandom)
    async with buffers.served(tmp_path / "agent.sock", gpu):
        gpu.goes_on.clear()
        buffer = await ask(tmp_path / "agent.sock")
        with buffer.bell() as made:
            assert all(ring(made, at) for at in (0, 2, 4))
            assert await asyncio.to_thread(gpu.copying.wait, 60)
            made.give_up()
            assert not buffer.alive
            gpu.goes_on.set()
            await gone(buffers, buffer.name)
        assert gpu.taken == [(buffer.name, 0)]


async def test_an_event_loop_waits_for_an_answer_too(tmp_path: Path) -> None:
    async with bell(tmp_path / "agent.sock", Gpu()) as (_, made):
        await made.rings(0.01)  # nothing comes: it gives up by itself
        assert ring(made, 2)
        async with asyncio.timeout(30):
            await made.rings(3600)
        assert [answer and answer.index for answer in made.answers(0.0)] == [2]


async def test_a_bell_for_a_gpu_that_is_not_there_is_not_answered_well(tmp_path: Path) -> None:
    async with bell(tmp_path / "agent.sock", Gpu()) as (buffer, made):
        assert made.ring(pack_names("gpu-9", "holder-north"), [(0, 8)])
        assert await answered(made, 1) == [None]
        made.again()
        assert ring(made, 2)
        assert await answered(made, 1) == [2]
        assert buffer.alive


async def test_one_bell_rings_for_two_gpus(tmp_path: Path) -> None:
    gpu = Gpu()
    async with bell(tmp_path / "agent.sock", gpu) as (_, made):
        gpu.known.add("gpu-1")
        assert ring(made, 0)
        assert made.ring(pack_names("gpu-1", "holder-north"), [(2, 8)])
        assert ring(made, 4)
        assert await answered(made, 3) == [0, 2, 4]


async def test_nothing_is_taken_behind_what_was_refused(tmp_path: Path) -> None:
    gpu = Gpu()
    async with bell(tmp_path / "agent.sock", gpu) as (buffer, made):
        for at in (0, 2, 3, 4, 6):
            assert ring(made, at)
        assert await answered(made, 5) == [0, 2, None, None, None]
        assert not made.open
        assert not ring(made, 8)  # not even sent
        made.again()
        assert ring(made, 10)
        assert await answered(made, 1) == [10]
        assert [at for _, at in gpu.taken] == [0, 2, 10]
        for broken, expected in ((True, None), (False, 14)):
            gpu.broken = broken
            assert ring(made, 14)
            assert await answered(made, 1) == [expected]
            made.again()
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
        assert ring(made, 4)
        assert await answered(made, 1) == [4]


async def test_a_buffer_whose_bell_says_what_it_may_not_is_given_back(tmp_path: Path) -> None:
    ours, theirs = socket.socketpair()
    ours.setblocking(False)
    for said in (b"\x00\x00\x00\x00", FRAME.pack(MAX_ANSWER_BYTES + 1), b""):
        buffer = BounceBuffer(ours.dup(), bytes(NAME_BYTES), mmap.mmap(-1, 4096))
        with buffer.bell() as made:
            if said != bytes(4):
                assert ring(made, 2)
                assert await asyncio.to_thread(theirs.recv, 4096)
            theirs.sendall(said) if said else theirs.close()
            assert await asyncio.to_thread(made.answers, 5.0) == []
            assert (made.open, made.settled) == (False, False)
        assert not buffer.alive
    ours.close()


async def test_whoever_is_not_answered_may_give_up() -> None:
    ours, theirs = socket.socketpair()
    ours.setblocking(False)
    made = Doorbell(ours, 0)
    assert ring(made, 0)
    assert made.answers(0.001) == []
    assert not made.silent
    made.give_up()
    assert made.silent
    assert not made.settled
    assert not ring(made, 2)
    for end in (ours, theirs):
        end.close()


async def test_a_holder_that_reads_no_answers_is_hung_up_on(tmp_path: Path) -> None:
    """Its answers would lie in the kernel's memory without an end."""
    buffers, path, frame = BounceBuffers(SIZE, os.urandom), tmp_path / "agent.sock", pack_rung(0, 0, NAMES, [(0, 8)])
    async with buffers.served(path, Gpu()):
        buffer = await ask(path)
        with pytest.raises(ConnectionError):
            await says(buffer._connection, FRAME.pack(len(frame)) + frame, 100_000)
        await gone(buffers, buffer.name)
        buffer.close()
