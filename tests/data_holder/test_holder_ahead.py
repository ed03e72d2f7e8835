"""What the next visit needs lies ready before it is offered: told by what is read when, never by how long it takes."""

from __future__ import annotations

import asyncio
import os
import threading
from collections import deque
from pathlib import Path
from typing import cast
from unittest.mock import Mock

import numpy as np
import pytest

from data_holder import sealed_ahead
from data_holder.datasets import Dataset, RecordTree
from data_holder.datasets.arrays import ArrayDataset
from data_holder.datasets.findings import UnfitData, refusal
from data_holder.ringing import Ringing, Rung
from data_holder.sealing import RecordSealer, SealedRecord
from data_holder.slots import Brought, Lying, Slot
from shared.claims.visit import CursorRange
from tests.data_holder.conftest import Running, Start
from tests.data_holder.holder_world import SESSION
from tests.data_holder.test_holder_visits import visit


@pytest.fixture
def reads(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """What was asked of dataset and tree, in order, by the first position of the visit that it was for."""
    found: list[str] = []
    read, shown = Dataset.read_slice, RecordTree.shown

    def reading(self: Dataset, cursor: CursorRange, offset: int, out: bytearray) -> None:
        found.append(f"{cursor.start} read {offset}")
        read(self, cursor, offset, out)

    def showing(self: RecordTree, cursor: CursorRange) -> tuple[bytes, bytes]:
        found.append(f"{cursor.start} proof")
        return shown(self, cursor)

    # Else nothing is read: these records lie in their file as they are sent.
    monkeypatch.setattr(ArrayDataset, "_rows", Dataset._rows)
    monkeypatch.setattr(Dataset, "read_slice", reading)
    monkeypatch.setattr(RecordTree, "shown", showing)
    return found


def _whole(start: int) -> list[str]:
    """A visit's proof, and each of its chunks once."""
    return [f"{start} proof", *(f"{start} read {at}" for at in range(0, 1280, 256))]


def _records(running: Running, round_: int) -> bytes:
    values = np.load(running.holder.foundation.settings.datasets["ehr"])["x"]
    return bytes(values[20 * (round_ - 1) : 20 * round_].tobytes())


async def _first(running: Running) -> None:
    """The first visit is through, and the second one prepared."""
    await running.approved_with_channel()
    await visit(running)
    await running.until(lambda: running.attempt_phase(1) == "REPORTED")
    await running.until(lambda: SESSION in running.holder.visits.ahead._readings)
    await running.holder.visits.ahead.settled(SESSION)


async def _second(running: Running, round_: int = 2) -> None:
    await visit(running, epoch=2, visit="v_0000000000000002", round=round_)
    await running.until(lambda: len(running.orchestrator.reports) == 2)


async def test_the_next_visit_is_read_and_proven_before_its_offer(running: Running, reads: list[str]) -> None:
    await _first(running)
    assert reads == [*_whole(0), *_whole(20)]
    reads.clear()
    await _second(running)
    assert bytes(running.gpu.plain) == _records(running, 2)
    await running.until(lambda: running.attempt_phase(2) == "REPORTED")
    await running.until(lambda: SESSION in running.holder.visits.ahead._readings)
    await running.holder.visits.ahead.settled(SESSION)
    assert reads == _whole(40)


async def test_a_visit_that_is_another_than_expected_reads_for_itself(running: Running, reads: list[str]) -> None:
    await _first(running)
    ready = running.holder.visits.ahead._readings[SESSION].task.result()
    reads.clear()
    await _second(running, round_=1)  # the same records once more
    assert reads[:6] == _whole(0)
    assert bytes(running.gpu.plain) == _records(running, 1)
    assert all(not any(chunk) for chunk in ready.chunks)  # what nobody wanted is overwritten


async def test_as_much_is_read_ahead_as_there_is_room_for(start: Start, reads: list[str]) -> None:
    async with start(prepare_bytes=4096) as running:
        running.holder.visits.ahead._room = 512
        await _first(running)
        assert reads[6:] == ["20 proof", "20 read 0", "20 read 256"]
        ready = running.holder.visits.ahead._readings[SESSION].task.result()
        reads.clear()
        await _second(running)
        assert reads[:3] == ["20 read 512", "20 read 768", "20 read 1024"]
        assert bytes(running.gpu.plain) == _records(running, 2)
        assert all(not any(chunk) for chunk in ready.chunks)  # once sealed, it is overwritten


async def test_files_that_change_after_they_were_read_are_noticed(running: Running) -> None:
    await _first(running)
    path = Path(running.holder.foundation.settings.datasets["ehr"])
    os.utime(path, ns=(1, 1))
    await visit(running, epoch=2, visit="v_0000000000000002", round=2)
    await running.until(lambda: running.orchestrator.refusals)
    assert running.orchestrator.refusals[0]["code"] == "data-changed"
    assert len(running.orchestrator.reports) == 1


async def test_a_session_that_ends_leaves_no_plaintext_ready(running: Running, reads: list[str]) -> None:
    await _first(running)
    ready = running.holder.visits.ahead._readings[SESSION].task.result()
    assert b"".join(ready.chunks) == _records(running, 2)
    await running.holder.visits.close(SESSION)
    assert not running.holder.visits.ahead._readings
    assert all(not any(chunk) for chunk in ready.chunks)


async def test_a_visit_that_is_stopped_waits_for_its_sealing_thread(
    running: Running, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sealed_ahead, "INLINE_BYTES", 0)
    monkeypatch.setattr(running.holder.visits, "_prepare_bytes", 1024)  # a few slots, which the thread has filled soon
    begun, never = asyncio.Event(), asyncio.Event()
    sealed: list[int] = []
    seal = RecordSealer.seal_next

    def sealing(self: RecordSealer, buffer: memoryview) -> SealedRecord:
        assert self._channel is not None, "the key was erased under the thread"
        sealed.append(self._next)
        return seal(self, buffer)

    async def stands_still(_: int) -> None:
        begun.set()
        await never.wait()

    monkeypatch.setattr(RecordSealer, "seal_next", sealing)
    await running.approved_with_channel()
    running.gpu.hook = stands_still
    await visit(running, chunk_bytes=96)
    await begun.wait()
    assert any(thread.name.startswith("seal") for thread in threading.enumerate())
    await running.holder.visits.cancel(SESSION)
    assert not any(thread.name.startswith("seal") for thread in threading.enumerate())
    assert sealed == list(range(len(sealed)))
    assert 0 < len(sealed) < 15  # it waited for a slot when it was stopped


async def test_a_visit_that_is_stopped_twice_still_waits_for_its_sealing_thread(
    running: Running, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A veto halts a visit, and closing the session cancels it once more: the key stays until the thread is through."""
    monkeypatch.setattr(sealed_ahead, "INLINE_BYTES", 0)
    inside, go_on = threading.Event(), threading.Event()
    held: list[bool] = []
    seal = RecordSealer.seal_next

    def sealing(self: RecordSealer, buffer: memoryview) -> SealedRecord:
        if self._next == 2:
            inside.set()
            assert go_on.wait(100)
            held.append(self._channel is not None)
        return seal(self, buffer)

    monkeypatch.setattr(RecordSealer, "seal_next", sealing)
    await running.approved_with_channel()
    await visit(running, chunk_bytes=96)
    await running.until(inside.is_set)
    running.holder.visits.halt(SESSION)
    for _ in range(50):  # until nothing but the thread is waited for
        await asyncio.sleep(0)
    ending = asyncio.create_task(running.holder.visits.cancel(SESSION))
    for _ in range(50):
        await asyncio.sleep(0)
    assert not ending.done()
    go_on.set()
    await ending
    assert held == [True]


def test_a_sealing_thread_that_is_stopped_before_it_waits_does_not_wait() -> None:
    """Nobody would ever wake it, and the visit's end waits for it."""
    ahead = sealed_ahead.SealedAhead(Mock(total=1, plain_bytes=1 << 30), [])
    for stopped in (False, True):
        ahead._stopped = stopped
        thread = threading.Thread(target=ahead._step, args=(lambda: None,), daemon=True)
        thread.start()
        thread.join(0.2 if not stopped else 60)
        assert thread.is_alive() is not stopped
    with ahead._changed:
        ahead._changed.notify_all()


class _Ringing:
    """Takes what lies ready. `rung`: how much there was, each time it was asked."""

    over, unanswered = False, ()

    def __init__(self) -> None:
        self.rung: list[int] = []

    def ring(self, ready: deque[Lying], *, more: bool) -> None:
        self.rung.append(len(ready))

    def acknowledged(self, wait_s: float) -> list[Rung]:
        return []


def test_a_bell_that_comes_while_the_first_record_is_sealed_is_rung_for_it() -> None:
    sealer, ringing = Mock(total=3, plain_bytes=1 << 30), _Ringing()
    ahead = sealed_ahead.SealedAhead(sealer, [Slot(bytearray(1)) for _ in range(2)])
    bell = sealed_ahead._AtTheBell(cast("Ringing", ringing), Mock(), Mock(), Mock())

    def seal(_memory: bytearray) -> SealedRecord:
        ahead._bell = bell
        return SealedRecord(0, 3, memoryview(b""), 0, 0)

    sealer.seal_next = seal
    news: list[None] = []
    ahead._step(lambda: news.append(None))
    assert (ringing.rung, news) == ([1], [])


async def test_a_bell_is_not_waited_for_when_the_thread_that_would_ring_it_has_failed() -> None:
    """A file that changes while what the doorbell did not bring goes over HTTP: the visit would hang, also beyond its lease."""
    sealed = [SealedRecord(0, 3, memoryview(b""), 0, 0), refusal("data-changed", "was changed", "ehr.npz")]
    sealer = Mock(total=3, plain_bytes=1 << 30, seal_next=Mock(side_effect=sealed))
    ahead = sealed_ahead.SealedAhead(sealer, [Slot(bytearray(1)) for _ in range(2)])
    async with ahead.sealing(), asyncio.timeout(10):
        while ahead._failed is None:
            await ahead._news.wait()
            ahead._news.clear()
        await ahead.rung(cast("Ringing", _Ringing()), lambda rungs: None)
        batch = await ahead.batch(2, ready=False)
        assert batch is not None
        assert [lying.record.index for lying in batch.whole] == [0], "what was sealed before is brought all the same"
        with pytest.raises(UnfitData, match="was changed"):
            await ahead.batch(2, ready=False)


def _told(at_s: list[float]) -> tuple[sealed_ahead._AtTheBell, list[int]]:
    """What was told at once, by how many rings, when rings were answered at these times."""
    told: list[int] = []
    loop = Mock(call_soon_threadsafe=lambda act, *what: act(*what))
    bell = sealed_ahead._AtTheBell(Mock(), loop, Mock(), lambda rings: told.append(len(rings)))
    for ended in at_s:
        bell.tell(Rung((), ended, ended))
    return bell, told


def test_of_what_is_acknowledged_the_first_is_told_at_once_and_then_ten_times_a_second() -> None:
    bell, told = _told([5.0, 5.001, 5.05, 5.099, 5.1, 5.15, 5.3])
    assert told == [1, 4, 2]
    bell.tell(Rung((), 5.3, 5.35))
    bell.ended()
    assert told == [1, 4, 2, 1]


def test_what_was_acknowledged_is_told_before_a_failure() -> None:
    bell, told = _told([5.0, 5.01])
    bell.failed(RuntimeError())
    assert told == [1, 1]


def test_what_was_acknowledged_keeps_no_records_until_it_is_told() -> None:
    """A visit of gigabytes would gather objects by the thousand, and Python would look through them for cycles meanwhile."""
    bell, _ = _told([])
    lying = [Lying(SealedRecord(n, 3, memoryview(bytes(50)), 30, n), Slot(bytearray(1))) for n in range(2)]
    rung = Rung(lying, 5.0, 5.1)
    bell.tell(rung)
    assert rung.batch == ()
    assert rung.brought == Brought(records=2, length=100, plain=60, proof=1)
