"""Reading datasets whole takes hours: it holds up nobody else, and ends when the holder stops."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from data_holder.datasets import Dataset, InspectionReport, arrays, record_tree
from data_holder.datasets.cells import CellBlocks
from data_holder.datasets.values import FieldScan
from data_holder.long_reads import AT_ONCE
from shared.errors import Unavailable
from shared.service.app import service_state
from tests.data_holder.conftest import Running, Start
from tests.data_holder.holder_world import FEATURES, SESSION, make_manifest

PATIENCE_S = 60


class Gate:
    """What passes says so, and waits until it may go on."""

    def __init__(self) -> None:
        self.passed, self._opened = 0, threading.Event()

    def before(self, act: Callable[..., Any]) -> Callable[..., Any]:
        def passing(*arguments: Any) -> Any:
            self.passed += 1
            assert self._opened.wait(PATIENCE_S)
            return act(*arguments)

        return passing

    def open(self) -> None:
        self._opened.set()


@pytest.fixture
def gate() -> Iterator[Gate]:
    gate = Gate()
    yield gate
    gate.open()


def csv_of(folder: Path) -> Path:
    rows = np.ones((9000, FEATURES), np.int64)
    head = ",".join(f"x{number}" for number in range(FEATURES))
    np.savetxt(folder / "ehr.csv", rows, "%d", ",", header=head, comments="")
    return folder / "ehr.csv"


async def program_of(running: Running) -> Any:
    running.orchestrator.ask_approval(make_manifest(running.orchestrator_key()))
    await running.until(lambda: running.holder.ledger.knows(SESSION))
    return (await running.holder.approvals.show(SESSION))[1]


async def test_what_everybody_shares_stays_free_while_datasets_are_hashed(
    start: Start, gate: Gate, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else running visits wait for their own threads until their leases run out, and what is there already cannot be opened."""
    async with start(approve="manual") as running:
        program, commitments = await program_of(running), running.holder.approvals._commitments
        (await commitments.open("s_0000000000000000", "ehr", program)).close()
        asyncio.get_running_loop().set_default_executor(ThreadPoolExecutor(1))
        monkeypatch.setattr(record_tree, "leaf_hashes", gate.before(record_tree.leaf_hashes))
        sessions = [f"s_000000000000000{number}" for number in range(1, AT_ONCE + 3)]
        building = [asyncio.create_task(commitments.open(session, "ehr", program)) for session in sessions]
        await running.until(lambda: gate.passed == AT_ONCE)
        async with asyncio.timeout(PATIENCE_S):
            assert await asyncio.to_thread(int) == 0
            (await commitments.open("s_0000000000000000", "ehr", program)).close()
        assert gate.passed == AT_ONCE
        gate.open()
        for committed in await asyncio.gather(*building):
            committed.close()


async def test_what_everybody_shares_stays_free_while_a_dataset_is_converted(
    start: Start, tmp_path: Path, gate: Gate, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with start(approve="manual", datasets={"ehr": csv_of(tmp_path)}) as running:
        program, catalogue = await program_of(running), running.holder.catalogue
        asyncio.get_running_loop().set_default_executor(ThreadPoolExecutor(1))
        monkeypatch.setattr(CellBlocks, "convert", gate.before(CellBlocks.convert))
        opening = [asyncio.create_task(catalogue.open_dataset("ehr", program)) for _ in range(AT_ONCE + 2)]
        await running.until(lambda: gate.passed == 1)  # the others wait for what this one makes
        async with asyncio.timeout(PATIENCE_S):
            assert await asyncio.to_thread(int) == 0
        gate.open()
        opened: list[Dataset] = await asyncio.gather(*opening)
        assert [dataset.records for dataset in opened] == [9000] * len(opened)
        for dataset in opened:
            dataset.close()
        assert gate.passed == 3  # blocks of one conversion


@pytest.mark.parametrize("kind", ["scan", "conversion"])
async def test_a_stop_ends_what_reads_a_dataset_whole(
    start: Start, tmp_path: Path, gate: Gate, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    before = set(threading.enumerate())
    monkeypatch.setattr(arrays, "BLOCK_BYTES", 1024)
    what, act = (CellBlocks, "convert") if kind == "conversion" else (FieldScan, "feed")
    datasets = {"ehr": csv_of(tmp_path)} if kind == "conversion" else {"ehr": tmp_path / "ehr.npz"}
    async with start(approve="manual", datasets=datasets) as running:
        program = await program_of(running)
        monkeypatch.setattr(what, act, gate.before(getattr(what, act)))
        inspecting: asyncio.Task[InspectionReport] = asyncio.create_task(
            running.holder.catalogue.inspect("ehr", program)
        )
        await running.until(lambda: gate.passed == 1)
        service_state(running.app).stopping.set()
        gate.open()
        with pytest.raises(Unavailable) as caught:
            await inspecting
        assert (caught.value.code, gate.passed) == ("stopping", 1)
        assert not list((tmp_path / "state" / "converted").glob("*.[rp]*"))
        with pytest.raises(Unavailable):
            await running.holder.catalogue.inspect("ehr", program)
    assert not [one for one in set(threading.enumerate()) - before if one.name.startswith("dataset")]
