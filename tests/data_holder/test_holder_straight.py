"""Records that lie in their file as they are sent are sealed out of it: nothing reads them, and what is not the file's is not sent."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import pytest

from data_holder.datasets import Dataset
from data_holder.sealing import RecordSealer, SealedRecord
from tests.data_holder.conftest import Running
from tests.data_holder.holder_world import SESSION
from tests.data_holder.test_holder_visits import visit


@pytest.fixture
def read(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Bytes of every read."""
    found: list[int] = []
    slice_ = Dataset.read_slice

    def reading(self: Dataset, cursor: object, offset: int, out: bytearray) -> None:
        found.append(len(out))
        slice_(self, cursor, offset, out)  # type: ignore[arg-type]  # passed on as it came

    monkeypatch.setattr(Dataset, "read_slice", reading)
    return found


def path_of(running: Running) -> Path:
    return Path(running.holder.foundation.settings.datasets["ehr"])


async def test_nothing_is_read_of_what_lies_there(running: Running, read: list[int]) -> None:
    await running.approved_with_channel()
    expected = np.load(path_of(running))["x"]
    for number, records in ((1, expected[:20]), (2, expected[20:40])):
        await visit(running, epoch=number, round=number, visit=f"v_000000000000000{number}")
        await running.until(lambda: running.attempt_phase(number) == "REPORTED")  # noqa: B023 (awaited here)
        assert bytes(running.gpu.plain) == records.tobytes()
        await running.until(lambda: SESSION in running.holder.visits.ahead._readings)
        await running.holder.visits.ahead.settled(SESSION)
        assert list(running.holder.visits.ahead._readings[SESSION].task.result().chunks) == []
    assert read == []
    assert running.orchestrator.reports[0].timers.buffer_read < 0.1


async def test_the_chunk_that_goes_round_the_datasets_end_is_read(running: Running, read: list[int]) -> None:
    await running.approved_with_channel()
    await visit(running, epoch=1, round=3)  # records 40 to 50, and 0 to 10
    await running.until(lambda: running.orchestrator.reports)
    values = np.load(path_of(running))["x"]
    assert bytes(running.gpu.plain) == values[40:].tobytes() + values[:10].tobytes()
    assert 0 < sum(read) < len(running.gpu.plain)


async def test_what_changed_while_it_was_sealed_is_not_sent(running: Running, monkeypatch: pytest.MonkeyPatch) -> None:
    await running.approved_with_channel()
    seal = RecordSealer._seal

    def sealing(self: RecordSealer, *arguments: object) -> SealedRecord:
        sealed = seal(self, *arguments)  # type: ignore[arg-type]  # passed on as it came
        if self._next == 2:
            os.utime(path_of(running), ns=(1, 1))
        return sealed  # type: ignore[return-value]  # passed on as it came

    monkeypatch.setattr(RecordSealer, "_seal", sealing)
    await visit(running, chunk_bytes=96)
    await running.until(lambda: running.orchestrator.refusals)
    assert running.orchestrator.refusals[0]["code"] == "data-changed"
    assert len(running.gpu.transcript) <= 2
    assert not running.orchestrator.reports
