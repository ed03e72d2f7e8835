"""Doorbells of bounce buffers: what was rung is taken in order or not at all, by a thread that stays while it rings, and no longer."""

from __future__ import annotations

import asyncio
import mmap
import os
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from unittest.mock import Mock

import pytest

from data_holder.bounce import BounceBuffer
from data_holder.doorbell import Doorbell
from gpu_agent.bounce import BounceBuffers
from shared.service.unix_socket import connected
from shared.wire.bounce import FRAME, MAX_ANSWER_BYTES, MAX_RUNG_BYTES, NAME_BYTES, REQUEST
from shared.wire.codec import decode
from shared.wire.copy import CopyAck
from tests.gpu.bell_world import SIZE, Gpu, ask


@asynccontextmanager
async def bell(path: Path, gpu: Gpu) -> AsyncIterator[tuple[BounceBuffer, Doorbell]]:
    async with BounceBuffers(SIZE, os.urandom).served(path, gpu):
        buffer = await ask(path)
        with buffer.bell() as made:
            yield buffer, made
        buffer.close()


def ring(bell: Doorbell, *offsets: int) -> bool:
    return bell.ring("gpu-0", "holder-north", [(offset, 8) for offset in offsets])


async def answered(bell: Doorbell, count: int) -> list[int | None]:
    """The next so many answers: the last record's offset, None: not taken."""
    found: list[int | None] = []
    while len(found) < count and not bell.silent:
        said = await asyncio.to_thread(bell.answers, 0.05)
        found += [None if answer is None else decode(CopyAck, answer).index for answer in said]
    return found


async def test_places_are_taken_in_the_order_in_which_they_were_rung(tmp_path: Path) -> None:
    gpu = Gpu()
    async with bell(tmp_path / "agent.sock", gpu) as (buffer, made):
        assert all(ring(made, at, at + 2) for at in range(0, 400, 4))  # all before the first answer
        assert await answered(made, 100) == list(range(2, 400, 4))
        assert gpu.taken == [(buffer.name, at) for at in range(0, 400, 2)]
        assert made.settled


async def test_the_copy_thread_stays_while_it_rings_and_goes_when_others_may_want_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("gpu_agent.doorbell.STAY_S", 5.0)
    gpu = Gpu()
    async with bell(tmp_path / "agent.sock", gpu) as (_, made):
        for at in range(0, 20, 2):
            assert ring(made, at)
            assert await answered(made, 1) == [at]
        assert gpu.stays == 1
        gpu.publishes = 20
        assert ring(made, 20)
        assert await answered(made, 1) == [20]
        assert ring(made, 22)  # the thread has not waited for it: a published visit is over
        assert await answered(made, 1) == [22]
        assert gpu.stays == 2


async def test_the_copy_thread_serves_others_after_so_many_rings(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("gpu_agent.doorbell.STAY_S", 5.0)
    monkeypatch.setattr("gpu_agent.doorbell.MOST_RINGS", 3)
    gpu = Gpu()
    async with bell(tmp_path / "agent.sock", gpu) as (_, made):
        for at in range(0, 18, 2):
            assert ring(made, at)
        assert await answered(made, 9) == list(range(0, 18, 2))
        assert gpu.stays == 3


async def test_a_bell_for_a_gpu_that_is_not_there_is_not_answered_well(tmp_path: Path) -> None:
    async with bell(tmp_path / "agent.sock", Gpu()) as (buffer, made):
        assert made.ring("gpu-9", "holder-north", [(0, 8)])
        assert await answered(made, 1) == [None]
        made.again()
        assert ring(made, 2)
        assert await answered(made, 1) == [2]
        assert buffer.alive


async def test_a_fault_of_the_agents_ends_no_door(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    gpu = Gpu()
    async with bell(tmp_path / "agent.sock", gpu) as (buffer, made):
        with monkeypatch.context() as patch:
            patch.setattr(gpu, "attend", Mock(side_effect=RuntimeError("no thread is left")))
            assert ring(made, 0)
            assert await answered(made, 1) == [None]
        made.again()
        assert ring(made, 2)
        assert await answered(made, 1) == [2]
        assert buffer.alive


async def test_who_rings_for_another_gpu_meanwhile_is_served_by_its_own_thread(tmp_path: Path) -> None:
    gpu = Gpu()
    async with bell(tmp_path / "agent.sock", gpu) as (_, made):
        gpu.known.add("gpu-1")
        assert ring(made, 0)
        assert made.ring("gpu-1", "holder-north", [(2, 8)])
        assert ring(made, 4)
        assert await answered(made, 3) == [0, 2, 4]
        assert gpu.stays == 3


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
    """It would keep the thread that others' copies wait for."""
    buffers, path, rung = BounceBuffers(SIZE, os.urandom), tmp_path / "agent.sock", 0
    async with buffers.served(path, Gpu()):
        buffer = await ask(path)
        made = Doorbell(buffer._connection, 0)
        while rung < 100_000 and ring(made, 0):
            rung += 1
            await asyncio.sleep(0)
        assert rung < 100_000
        name = buffer.name
        for _ in range(2000):
            if name not in buffers._buffers:
                break
            await asyncio.sleep(0.005)
        assert name not in buffers._buffers
