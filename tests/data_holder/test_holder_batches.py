"""Several records by one request: as many as there is room for, sealed while others travel, sent again byte by byte."""

from __future__ import annotations

import asyncio
import threading
from typing import Any
from unittest.mock import Mock

import httpx2
import numpy as np
import pytest

from data_holder import sealed_ahead
from data_holder.batches import Batch
from data_holder.carriers import HttpCarrier
from data_holder.sealing import RecordSealer, SealedRecord
from data_holder.slots import Lying, Slot
from shared.errors import ProtocolViolation
from tests.data_holder.conftest import Running
from tests.data_holder.holder_gpu import problem, split
from tests.data_holder.test_holder_visits import visit


@pytest.mark.parametrize("fault", ["before", "after", "both"])
@pytest.mark.parametrize("at_once", [False, True])
async def test_a_cut_connection_repeats_the_same_bytes(
    running: Running, fault: str, at_once: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    if not at_once:
        monkeypatch.setattr(HttpCarrier, "limit", 1)
    await running.approved_with_channel()
    if fault != "after":
        running.gpu.cut_before = {0, 3, 5}
    if fault != "before":
        running.gpu.cut_after = {1, 3, 5}  # 5 is the closing record
    await visit(running)
    await running.until(lambda: running.orchestrator.reports)
    assert running.gpu.published
    repeats = len(running.gpu.transcript) - 6
    # After the first cut each record goes by itself.
    assert repeats == {"before": 0, "both": 3, "after": 4 if at_once else 3}[fault]
    assert not running.gpu.cut_before | running.gpu.cut_after
    running.gpu.one_ciphertext_per_counter()
    links = await running.get("/v1/links")
    assert links["dataset_bytes_to_gpu"] == 20 * 64  # repeats are not counted twice


@pytest.mark.parametrize("inline", [0, 1 << 20])
@pytest.mark.parametrize(("limit", "calls"), [(16, 1), (7, 3)])
async def test_as_many_records_share_a_request_as_there_is_room_for(
    running: Running, monkeypatch: pytest.MonkeyPatch, inline: int, limit: int, calls: int
) -> None:
    monkeypatch.setattr("data_holder.sealed_ahead.INLINE_BYTES", inline)
    monkeypatch.setattr(HttpCarrier, "limit", limit)
    await running.approved_with_channel()
    running.gpu.unbound = 3
    await visit(running, chunk_bytes=96)
    await running.until(lambda: running.orchestrator.reports)
    assert running.gpu.plain == np.load(running.holder.foundation.settings.datasets["ehr"])["x"][:20].tobytes()
    assert len(running.gpu.transcript) == 15
    assert running.gpu.calls == 3 + calls, "three in vain"
    assert running.orchestrator.reports[0].bytes_sent > sum(map(len, running.gpu.transcript))


def _sealed(index: int, total: int = 3) -> SealedRecord:
    return SealedRecord(index, total, memoryview(bytes([index]) * 4), 0, 0)


async def test_records_travel_while_those_behind_them_are_sealed() -> None:
    """By their lengths, which are known before: a request that waited for its last record would have the link idle meanwhile."""
    go = threading.Event()

    def seal(_memory: Any) -> SealedRecord:
        index = seal_next.call_count - 1
        assert index == 0 or go.wait(20)
        return _sealed(index)

    seal_next = Mock(side_effect=seal)
    sealer = Mock(total=3, plain_bytes=1 << 30, seal_next=seal_next, record_bytes=lambda index: 4)
    ahead = sealed_ahead.SealedAhead(sealer, [Slot(bytearray(4)) for _ in range(3)])
    async with ahead.sealing(), asyncio.timeout(20):
        batch = await ahead.batch(3, ready=False)
        assert batch is not None
        assert (batch.count, batch.length) == (3, 12)
        seen = []
        async for record in batch.records():
            seen.append(bytes(record))
            go.set()
        assert seen == [b"\0" * 4, b"\1" * 4, b"\2" * 4]
        assert [bytes(record) async for record in batch.records()] == seen, "the same bytes again"
        ahead.give_back(batch.whole)
        last = await ahead.batch(3, ready=True)
        assert last is not None
        assert [lying.record.closing for lying in last.whole] == [True]
        ahead.give_back(last.whole)
        assert await ahead.batch(3, ready=False) is None


async def test_nobody_can_acknowledge_what_was_not_sent() -> None:
    async def more() -> Lying:
        raise AssertionError("nobody asks")

    batch = Batch([4, 4], [Lying(_sealed(0), Slot(bytearray(4)))], more)
    with pytest.raises(ProtocolViolation, match="was not sent") as caught:
        assert batch.whole
    assert caught.value.code == "wrong-acknowledgement"


async def test_each_by_itself_is_brought_when_it_is_sealed() -> None:
    """A record that takes long to read would have its request ended by the agent, again and again: a body has a least rate."""
    sealed = [Lying(_sealed(index), Slot(bytearray(4))) for index in range(3)]
    coming = iter(sealed[1:])

    async def more() -> Lying:
        return next(coming)

    batch = Batch([4, 4, 4], sealed[:1], more)
    singles = [one async for one in batch.singly()]
    assert [(one.count, one.repeats, list(one.whole)) for one in singles] == [(1, True, [lying]) for lying in sealed]
    assert list(batch.whole) == sealed


async def test_what_is_counted_as_sent_was() -> None:
    """A request that is refused while the GPU is away was not heard to its end; its length says nothing of the link."""
    batch = Batch([4, 4, 4], [Lying(_sealed(index), Slot(bytearray(4))) for index in range(3)], Mock())
    reading = batch.records()
    await anext(reading)
    assert batch.sent == 4
    await reading.aclose()
    assert [len(record) async for record in batch.records()] == [4, 4, 4]
    assert batch.sent == 16


async def test_a_record_of_another_length_than_was_said_is_not_sent() -> None:
    batch = Batch([5], [Lying(_sealed(0), Slot(bytearray(4)))], Mock())
    with pytest.raises(ProtocolViolation, match="another length"):
        await anext(batch.records())


@pytest.mark.parametrize("inline", [True, False])
async def test_every_records_length_is_known_before_it_is_sealed(
    running: Running, monkeypatch: pytest.MonkeyPatch, inline: bool
) -> None:
    """Of data, the last piece, a proof in records of its own or in the closing one, and the closing one itself."""
    if not inline:
        monkeypatch.setattr("data_holder.sealing.MAX_INLINE_PROOF", 32)
    seen, seal = [], RecordSealer.seal_next

    def watched(sealer: RecordSealer, buffer: Any) -> SealedRecord:
        said = sealer.record_bytes(sealer.sealed)
        record = seal(sealer, buffer)
        seen.append((said, len(record.data)))
        return record

    monkeypatch.setattr(RecordSealer, "seal_next", watched)
    await running.approved_with_channel()
    await visit(running, chunk_bytes=96)
    await running.until(lambda: running.orchestrator.reports)
    assert len(seen) == len(running.gpu.transcript) >= 15 + (not inline)
    assert all(said == length for said, length in seen)


async def test_a_file_that_changes_while_its_records_travel_ends_the_visit(
    running: Running, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The request is under way, and its body ends with a fault of ours: that is no broken link, over which the same would be sent again."""
    monkeypatch.setattr("data_holder.sealed_ahead.INLINE_BYTES", 0)
    path, seal = running.holder.foundation.settings.datasets["ehr"], RecordSealer.seal_next

    def changes(sealer: RecordSealer, buffer: Any) -> SealedRecord:
        if sealer.sealed == 2:
            with path.open("r+b") as file:
                file.write(b"x")
        return seal(sealer, buffer)

    monkeypatch.setattr(RecordSealer, "seal_next", changes)
    await running.approved_with_channel()
    await visit(running)
    await running.until(lambda: running.orchestrator.refusals)
    assert running.orchestrator.refusals[0]["code"] == "data-changed"
    assert not running.gpu.published


async def test_a_record_that_takes_long_to_read_is_no_refusal(
    running: Running, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A body has a least rate at the agent, and a slow disk has none: what is sealed by then goes by itself."""
    gpu, answer, cut = running.gpu, running.gpu.handle_async_request, 0

    async def impatient(request: httpx2.Request) -> httpx2.Response:
        nonlocal cut
        if len(split(await request.aread())) == 1:
            return await answer(request)
        cut += 1
        return problem(408, "Request timeout", "request-too-slow")

    monkeypatch.setattr(gpu, "handle_async_request", impatient)
    await running.approved_with_channel()
    await visit(running)
    await running.until(lambda: running.orchestrator.reports)
    assert (cut, gpu.published, len(gpu.transcript)) == (1, True, 6)


async def test_what_had_to_be_waited_for_is_sent_within_the_lease_only(
    running: Running, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Behind it a record would end the grant, for a reason that says nothing of a slow disk."""
    monkeypatch.setattr("data_holder.sealed_ahead.INLINE_BYTES", 0)
    seal, started = RecordSealer.seal_next, asyncio.get_running_loop()

    def slow(sealer: RecordSealer, buffer: Any) -> SealedRecord:
        if sealer.sealed == 2:
            asyncio.run_coroutine_threadsafe(running.until(lambda: running.gpu.calls), started).result(20)
            running.clock.now += 120
        return seal(sealer, buffer)

    monkeypatch.setattr(RecordSealer, "seal_next", slow)
    gpu, answer = running.gpu, running.gpu.handle_async_request

    async def counted(request: httpx2.Request) -> httpx2.Response:
        gpu.calls += 1
        return await answer(request)

    monkeypatch.setattr(gpu, "handle_async_request", counted)
    await running.approved_with_channel()
    await visit(running)
    await running.until(lambda: running.orchestrator.refusals)
    assert running.orchestrator.refusals[0]["code"] == "lease-expired"
    assert not gpu.published
