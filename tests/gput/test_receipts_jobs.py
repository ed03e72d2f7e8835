"""Receipts verified by several processes: found is what one process finds, word for word, and none of them is left behind."""

from __future__ import annotations

import os
import random
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path

import pytest

from gput import receipt_crew
from gput.__main__ import main
from gput.receipt_folder import LEAVES
from gput.receipt_known import Known
from gput.receipt_leaves import HeldLeaf
from gput.receipt_worker import holding
from gput.receipts import Verified, verify
from shared.errors import GputError, Unavailable
from tests.gput.gput_samples import Saved
from tests.world.world import PATIENCE_S

FLIPS = 6
CHILD = """
import signal, sys, time
signal.signal(signal.SIGINT, signal.default_int_handler)  # as at a terminal: whoever runs these tests in the background has it ignored
from pathlib import Path
from gput import receipts, receipt_crew
enter = receipt_crew.Crew.__enter__

def told(self):
    enter(self)
    print(*self.pids, flush=True)
    return self

receipt_crew.Crew.__enter__ = told
receipt_crew.FEW = receipt_crew.CHUNK = 1
receipts.verify(Path(sys.argv[1]), jobs=2, progress=lambda done, total: time.sleep(3600))
"""


@pytest.fixture(autouse=True)
def little_is_much(monkeypatch: pytest.MonkeyPatch) -> None:
    """A session of the tests has few leaves: each is a piece of its own, and a few are enough for further processes."""
    monkeypatch.setattr(receipt_crew, "FEW", 1)
    monkeypatch.setattr(receipt_crew, "CHUNK", 2)


@pytest.fixture(scope="module")
def folder(saved: Saved, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of the saved folder; each test leaves it as it was."""
    target = tmp_path_factory.mktemp("jobs") / "receipts"
    shutil.copytree(saved.folder, target)
    return target


def outcome(folder: Path, jobs: int) -> Verified | tuple[type[GputError], dict[str, object]]:
    try:
        return verify(folder, jobs=jobs)
    except GputError as error:
        return type(error), vars(error)


def test_the_same_is_found(folder: Path) -> None:
    found = outcome(folder, 1)
    assert isinstance(found, Verified)
    assert found.receipts > receipt_crew.CHUNK
    assert outcome(folder, 2) == found


def test_the_same_is_refused(folder: Path) -> None:
    """Bits flipped at places drawn by seed, in up to three leaves at once: the first that is bad is named alike, whoever came upon it."""
    path, draw = folder / LEAVES, random.Random("jobs")
    good = path.read_bytes()
    try:
        for _ in range(FLIPS):
            spoilt = bytearray(good)
            for _ in range(draw.randint(1, 3)):
                spoilt[draw.randrange(len(good))] ^= 1 << draw.randrange(8)
            path.write_bytes(spoilt)
            found = outcome(folder, 1)
            assert isinstance(found, tuple), "verified a spoilt log"
            assert str(found[1]["detail"]).startswith(f"{LEAVES}: leaf "), found
            assert outcome(folder, 2) == found
    finally:
        path.write_bytes(good)


def test_leaves_that_are_missing_are_missed_by_any_number(folder: Path) -> None:
    path = folder / LEAVES
    good = path.read_bytes()
    try:
        path.write_bytes(good[: good.rindex(b"\n", 0, -1) + 1])
        found = outcome(folder, 1)
        assert isinstance(found, tuple)
        assert outcome(folder, 2) == found
    finally:
        path.write_bytes(good)


def test_no_process_is_left_by_success_nor_error(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pids = started(monkeypatch)
    verify(folder, jobs=3)
    path = folder / LEAVES
    good = path.read_bytes()
    try:
        path.write_bytes(good.replace(b'"index":1,', b'"index":2,', 1))
        with pytest.raises(GputError, match="leaf 1: its index"):
            verify(folder, jobs=3)
    finally:
        path.write_bytes(good)
    assert len(pids) == 6
    assert not alive(pids)


def test_a_process_that_dies_is_an_error_and_no_wait(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pids = started(monkeypatch, kill=True)
    with pytest.raises(Unavailable) as found:
        verify(folder, jobs=2)
    assert found.value.code == "worker-died"
    assert pids
    assert not alive(pids)


@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGINT])
def test_no_process_outlives_the_one_that_asks(folder: Path, how: signal.Signals) -> None:
    asker = subprocess.Popen([sys.executable, "-c", CHILD, str(folder)], stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    with asker:
        assert asker.stdout is not None
        pids = [int(pid) for pid in asker.stdout.readline().split()]
        assert len(alive(pids)) == 2
        asker.send_signal(how)
    end = time.monotonic() + PATIENCE_S
    while alive(pids) and time.monotonic() < end:
        time.sleep(0.02)
    assert not alive(pids)


def test_a_leaf_that_only_another_process_refuses_is_told_so(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(receipt_crew, "holding", lambda known, first, lines: [])
    with pytest.raises(GputError) as found:
        verify(folder, jobs=1)
    assert (found.value.code, found.value.detail.split(": ")[:2]) == ("checked-differently", [LEAVES, "leaf 0"])


def test_what_is_known_survives_the_way_to_another_process(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[Known] = []

    def recorded(known: Known, first: int, lines: Sequence[bytes]) -> list[HeldLeaf]:
        seen.append(known)
        return holding(known, first, lines)

    monkeypatch.setattr(receipt_crew, "holding", recorded)
    verify(folder)
    there = Known.from_bytes(seen[0].to_bytes())
    assert (there.head, there.book) == (seen[0].head, seen[0].book)
    assert there.to_bytes() == seen[0].to_bytes()


def test_the_command_takes_a_number(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["receipts", "verify", str(folder), "--jobs", "2", "--format", "json"]) == 0
    assert main(["receipts", "verify", str(folder), "--jobs", "0"]) == 2
    assert "--jobs" in capsys.readouterr().err


def started(monkeypatch: pytest.MonkeyPatch, *, kill: bool = False) -> list[int]:
    """Ids of all processes that are started from now on. `kill`: each is killed at once."""
    pids: list[int] = []
    enter = receipt_crew.Crew.__enter__

    def told(self: receipt_crew.Crew) -> receipt_crew.Crew:
        enter(self)
        pids.extend(self.pids)
        for pid in self.pids if kill else ():
            os.kill(pid, signal.SIGKILL)
        return self

    monkeypatch.setattr(receipt_crew.Crew, "__enter__", told)
    return pids


def alive(pids: list[int]) -> list[int]:
    """Those that run; one that has ended and was not yet waited for does not."""
    return [
        pid
        for pid in pids
        if (stat := Path(f"/proc/{pid}/stat")).exists() and stat.read_text().rpartition(")")[2].split()[0] != "Z"
    ]
