"""A visit through a bounce buffer is the same visit; and where there is no buffer, or the agent forgets it, the records come over HTTP."""

from __future__ import annotations

import asyncio
import os
import threading
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import numpy as np
import pytest

from data_holder import gpu_channel, sealed_ahead
from data_holder.sealing import RecordSealer, SealedRecord
from gpu_agent.bounce import BounceBuffers
from shared.errors import Conflict
from shared.wire.bounce import Rung
from shared.wire.copy import Copied, parse_record
from tests.data_holder.conftest import Running, Start
from tests.data_holder.holder_gpu import Gpu
from tests.data_holder.test_holder_timers import took_at_most_the_rest
from tests.data_holder.test_holder_visits import visit


def records(running: Running) -> bytes:
    return bytes(np.load(running.holder.foundation.settings.datasets["ehr"])["x"][:20].tobytes())


@asynccontextmanager
async def beside_an_agent(
    start: Start, folder: Path, prepare_bytes: int
) -> AsyncIterator[tuple[Running, BounceBuffers]]:
    """A holder on the machine of an agent that gives bounce buffers."""
    buffers, path = BounceBuffers(1 << 20, os.urandom), folder / "agent.sock"
    copies = _Copies()
    async with buffers.served(path, copies), start(bounce_socket=path, prepare_bytes=prepare_bytes) as running:
        copies.gpu = running.gpu
        yield running, buffers


class _Copies:
    """The running world's GPU, which is there only once the agent's socket is."""

    gpu: Gpu

    def arrives(self, rung: Rung) -> None:
        self.gpu.arrives(rung)

    def copy(self, name: str, rung: Rung) -> Copied:
        return self.gpu.copy(name, rung)


@pytest.fixture
def on_a_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    """However little a visit is, it is sealed and rung by a thread of its own."""
    monkeypatch.setattr(sealed_ahead, "INLINE_BYTES", 0)


@pytest.fixture
def all_sealed(monkeypatch: pytest.MonkeyPatch) -> threading.Event:
    """Set when the visit's closing record is sealed."""
    event, seal_next = threading.Event(), RecordSealer.seal_next

    def seal(sealer: RecordSealer, buffer: bytearray | memoryview) -> SealedRecord:
        record = seal_next(sealer, buffer)
        if record.closing:
            event.set()
        return record

    monkeypatch.setattr(RecordSealer, "seal_next", seal)
    return event


@pytest.mark.usefixtures("on_a_thread")
async def test_records_lie_in_the_buffer_and_no_socket_carries_them(
    start: Start, tmp_path: Path, all_sealed: threading.Event
) -> None:
    async def until_all_are_sealed(index: int) -> None:
        assert await asyncio.to_thread(all_sealed.wait, 60)

    async with beside_an_agent(start, tmp_path, 1 << 18) as (running, buffers):  # slots for all
        # However fast the GPU answers on this machine, it answers the first record only when all lie ready.
        running.gpu.buffers, running.gpu.hook = buffers, until_all_are_sealed
        await running.approved_with_channel()
        await visit(running, chunk_bytes=96)
        await running.until(lambda: running.orchestrator.reports)
        report = running.orchestrator.reports[0]
        assert bytes(running.gpu.plain) == records(running)
        assert (report.link, report.length) == ("bounce", len(records(running)))
        assert report.bytes_sent == sum(map(len, running.gpu.transcript))
        assert running.gpu.calls == 0  # nor did a request name them
        assert sum(running.gpu.rings) == len(running.gpu.transcript) == 15
        assert 1 < len(running.gpu.rings) < 15  # several records at once
        running.gpu.one_ciphertext_per_counter()
        assert (await running.get("/v1/links"))["dataset_bytes_to_gpu"] == len(records(running))


async def test_a_visit_of_little_comes_by_one_ring(start: Start, tmp_path: Path) -> None:
    """A thread that seals and rings would cost it more than it saves."""
    async with beside_an_agent(start, tmp_path, 1 << 18) as (running, buffers):
        running.gpu.buffers = buffers
        await running.approved_with_channel()
        await visit(running, chunk_bytes=96)
        await running.until(lambda: running.orchestrator.reports)
        assert (running.gpu.calls, running.gpu.rings) == (0, [15])
        assert bytes(running.gpu.plain) == records(running)
        running.gpu.one_ciphertext_per_counter()


@pytest.mark.parametrize("inline_bytes", [0, 1 << 17])
async def test_a_ring_waits_for_the_gpu_and_that_is_no_time_of_the_visit(
    start: Start, tmp_path: Path, inline_bytes: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whether a thread rings or the event loop."""
    monkeypatch.setattr(sealed_ahead, "INLINE_BYTES", inline_bytes)
    async with beside_an_agent(start, tmp_path, 1 << 18) as (running, buffers):
        running.gpu.buffers, running.gpu.away_s = buffers, 0.3
        await running.approved_with_channel()
        await took_at_most_the_rest(running, 0.3, chunk_bytes=96)
        assert running.gpu.calls == 0
        assert bytes(running.gpu.plain) == records(running)


async def test_a_ring_that_waited_in_vain_is_no_time_of_the_visit_either(
    start: Start, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The GPU comes when the agent has just given up waiting for it: the records come over HTTP."""

    def in_vain(_gpu: object, _rung: object) -> None:
        time.sleep(0.3)
        raise Conflict("not here", code="port-not-bound")

    async with beside_an_agent(start, tmp_path, 1 << 18) as (running, buffers):
        running.gpu.buffers = buffers
        monkeypatch.setattr(type(running.gpu), "arrives", in_vain)
        await running.approved_with_channel()
        await took_at_most_the_rest(running, 0.3, chunk_bytes=96)
        assert running.gpu.batches == [15]


async def test_a_visit_of_little_that_the_doorbell_did_not_bring_comes_over_http(start: Start, tmp_path: Path) -> None:
    async with beside_an_agent(start, tmp_path, 1 << 18) as (running, buffers):
        running.gpu.buffers, running.gpu.miss_before = buffers, {4}
        await running.approved_with_channel()
        await visit(running, chunk_bytes=96)
        await running.until(lambda: running.orchestrator.reports)
        assert (running.gpu.rings, running.gpu.batches) == ([15], [15])
        assert bytes(running.gpu.plain) == records(running)
        running.gpu.one_ciphertext_per_counter()


@pytest.mark.usefixtures("on_a_thread")
@pytest.mark.parametrize("missed", [{5}, {3, 12}, {13}, {14}])
async def test_what_the_doorbell_did_not_bring_is_named_over_http_in_order(
    start: Start, tmp_path: Path, missed: set[int]
) -> None:
    """The same bytes, nothing before what it follows, and then the doorbell again."""
    async with beside_an_agent(start, tmp_path, 5 * 4096) as (running, buffers):  # five slots: one record at once
        running.gpu.buffers = buffers
        running.gpu.miss_before, running.gpu.miss_after = set(missed), {8}
        await running.approved_with_channel()
        await visit(running, chunk_bytes=96)
        await running.until(lambda: running.orchestrator.reports)
        assert running.orchestrator.reports[0].link == "bounce"
        assert bytes(running.gpu.plain) == records(running)
        assert not running.gpu.miss_before | running.gpu.miss_after
        firsts = list(dict.fromkeys(parse_record(body)[0].index for body in running.gpu.transcript))
        assert firsts == list(range(15))
        assert len(running.gpu.transcript) == 16  # record 8 twice
        assert len(running.gpu.batches) >= 2
        assert len(running.gpu.rings) >= 8
        running.gpu.one_ciphertext_per_counter()
        assert (await running.get("/v1/links"))["dataset_bytes_to_gpu"] == len(records(running))


@pytest.mark.usefixtures("on_a_thread")
async def test_a_visit_that_is_stopped_takes_its_buffer_along(start: Start, tmp_path: Path) -> None:
    """The agent may still read there what the next visit would write over."""
    async with beside_an_agent(start, tmp_path, 5 * 4096) as (running, buffers):
        running.gpu.buffers = buffers
        begun, never = asyncio.Event(), asyncio.Event()

        async def stands_still(index: int) -> None:
            if index >= 3:
                begun.set()
                await never.wait()

        running.gpu.hook = stands_still
        await running.approved_with_channel()
        await visit(running, chunk_bytes=96)
        await begun.wait()
        [before] = buffers._buffers
        running.orchestrator.proven = None
        running.orchestrator.post("channel_wanted")  # a recalled visit has spent its key: a new channel comes first
        await running.until(lambda: running.orchestrator.proven)
        await running.until(lambda: not running.holder.visits._running)
        running.gpu.hook = None
        await visit(running, epoch=2, chunk_bytes=96)
        never.set()
        await running.until(lambda: running.orchestrator.reports)
        assert running.orchestrator.reports[0].link == "bounce"
        assert bytes(running.gpu.plain) == records(running)
        assert before not in buffers._buffers


@pytest.mark.usefixtures("on_a_thread")
async def test_a_bug_behind_the_doorbell_ends_no_visit(start: Start, tmp_path: Path) -> None:
    async with beside_an_agent(start, tmp_path, 5 * 4096) as (running, buffers):
        running.gpu.buffers = buffers

        async def stumbles(index: int) -> None:
            if index == 4:
                running.gpu.hook = None
                raise RuntimeError("a bug in the agent")

        running.gpu.hook = stumbles
        await running.approved_with_channel()
        await visit(running, chunk_bytes=96)
        await running.until(lambda: running.orchestrator.reports)
        assert bytes(running.gpu.plain) == records(running)
        running.gpu.one_ciphertext_per_counter()


async def test_what_the_agent_forgot_comes_over_http(start: Start, tmp_path: Path) -> None:
    async with beside_an_agent(start, tmp_path, 65536) as (running, _):
        running.gpu.buffers = BounceBuffers(0, os.urandom)  # as if it had begun anew meanwhile
        await running.approved_with_channel()
        await visit(running, chunk_bytes=96)
        await running.until(lambda: running.orchestrator.reports)
        assert running.orchestrator.reports[0].link == "http"
        assert bytes(running.gpu.plain) == records(running)
        assert len(running.gpu.batches) == 1
        assert len(running.gpu.transcript) == 15  # each once
        running.gpu.one_ciphertext_per_counter()


async def test_without_an_agent_at_the_socket_records_come_over_http(start: Start, tmp_path: Path) -> None:
    async with start(bounce_socket=tmp_path / "nobody.sock") as running:
        await running.approved_with_channel()
        await visit(running)
        await running.until(lambda: running.orchestrator.reports)
        assert running.orchestrator.reports[0].link == "http"


async def test_a_buffer_too_small_for_two_records_is_not_used(start: Start, tmp_path: Path) -> None:
    async with beside_an_agent(start, tmp_path, 4096) as (running, buffers):
        running.gpu.buffers = buffers
        await running.approved_with_channel()
        await visit(running)
        await running.until(lambda: running.orchestrator.reports)
        assert (running.orchestrator.reports[0].link, running.gpu.batches) == ("http", [])


@pytest.mark.parametrize("inline_bytes", [0, 1 << 17])
async def test_rings_that_were_given_up_find_no_other_record_later(
    start: Start, tmp_path: Path, inline_bytes: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The agent stands still at the first ring, for longer than the holder waits, and looks there when all has come another way."""
    monkeypatch.setattr(sealed_ahead, "INLINE_BYTES", inline_bytes)
    monkeypatch.setattr(gpu_channel, "CALL_TIMEOUT_S", 0.2)
    goes_on, copy, looked = threading.Event(), Gpu.copy, list[Rung]()

    def late(gpu: Gpu, name: str, rung: Rung) -> Copied:
        looked.append(rung)
        assert goes_on.wait(60)
        return copy(gpu, name, rung)

    monkeypatch.setattr(Gpu, "copy", late)
    prepare_bytes = 1 << 18 if inline_bytes else 5 * 4096
    async with beside_an_agent(start, tmp_path, prepare_bytes) as (running, buffers):
        running.gpu.buffers = buffers
        await running.approved_with_channel()
        await visit(running, chunk_bytes=96)
        await running.until(lambda: running.orchestrator.reports)
        assert (running.orchestrator.reports[0].link, running.gpu.batches) == ("http", [])
        assert bytes(running.gpu.plain) == records(running)
        before = len(running.gpu.transcript)
        goes_on.set()
        await running.until(lambda: not buffers._buffers)
        [rung] = looked  # what was rung behind it was not looked at
        assert len(running.gpu.transcript) == before + len(rung.places)
        running.gpu.one_ciphertext_per_counter()
