"""A dataset's file is cut short by its owner at any moment of reading: the data are refused by name, and the reader lives on."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import safetensors.numpy

from data_holder.datasets import Dataset, RecordTree, UnfitData, open_dataset
from shared.claims.records import RecordField, RecordSchema
from shared.claims.visit import CursorRange

ROWS, WIDTH = 40_000, 32
ARRAYS = RecordSchema(
    fields=(RecordField(name="x", dtype="float32", shape=(WIDTH,)), RecordField(name="y", dtype="int64"))
)
TOKENS = RecordSchema(fields=(RecordField(name="tokens", dtype="int64", shape=(257,)),))


def _arrays() -> dict[str, np.ndarray]:
    draw = np.random.default_rng(3)
    return {"x": draw.standard_normal((ROWS, WIDTH), dtype=np.float32), "y": draw.integers(0, 4, ROWS)}


def npy(folder: Path) -> Path:
    for name, values in _arrays().items():
        np.save(folder / f"{name}.npy", values)
    return folder / "x.npy"


def npz(folder: Path) -> Path:
    np.savez(folder / "d.npz", **_arrays())
    return folder / "d.npz"


def st(folder: Path) -> Path:
    safetensors.numpy.save_file(_arrays(), folder / "d.safetensors")
    return folder / "d.safetensors"


def text(folder: Path) -> Path:
    (folder / "a.txt").write_bytes(bytes(range(256)) * 20_000)
    return folder / "a.txt"


def shard(folder: Path) -> Path:
    np.random.default_rng(3).integers(0, 5000, 2_000_000, dtype=np.uint16).tofile(folder / "a.bin")
    return folder / "a.bin"


KINDS = {"npy": npy, "npz": npz, "safetensors": st, "text": text, "nanogpt": shard}


def dataset_of(kind: str, file: Path) -> Dataset:
    tokenizer = {"text": "bytes", "nanogpt": "external"}.get(kind, "none")
    path = file.parent if kind == "npy" else file
    return open_dataset(path, TOKENS if tokenizer != "none" else ARRAYS, tokenizer)  # type: ignore[arg-type]


def opened(kind: str, folder: Path) -> tuple[Dataset, Path]:
    file = KINDS[kind](folder)
    return dataset_of(kind, file), file


def cursor(dataset: Dataset, order: str) -> CursorRange:
    return CursorRange(start=0, count=min(dataset.records, 4000), order=order, seed=1)  # type: ignore[arg-type]


def read(dataset: Dataset, order: str) -> bytes:
    out = bytearray(cursor(dataset, order).count * dataset.record_bytes)
    dataset.read_into(cursor(dataset, order), out)
    return bytes(out)


@pytest.mark.parametrize("order", ["sequential", "shuffled"])
@pytest.mark.parametrize("kind", KINDS)
def test_cut_in_the_very_middle_of_a_copy(
    kind: str, order: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The cut falls between whatever looked at the file beforehand and the touch of its pages: exactly where a process used to end."""
    dataset, file = opened(kind, tmp_path)
    before, gather = read(dataset, order), dataset._gather

    def cut_then_gather(*arguments: object) -> None:
        os.truncate(file, 5000)
        gather(*arguments)  # type: ignore[arg-type]

    monkeypatch.setattr(dataset, "_gather", cut_then_gather)
    with pytest.raises(UnfitData) as caught:
        read(dataset, order)
    assert caught.value.code == "data-changed"
    assert file.name in caught.value.detail
    assert caught.value.remedy
    dataset.close()
    again, _ = opened(kind, tmp_path)  # written anew: the same records again
    assert read(again, order) == before
    again.close()


@pytest.mark.parametrize("forge", [False, True])
def test_a_file_that_looks_as_before_after_a_cut_is_still_refused(
    forge: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    dataset, file = opened("nanogpt", tmp_path)
    gather, held = dataset._gather, file.stat()

    def cut(*arguments: object) -> None:
        os.truncate(file, 0)
        gather(*arguments)  # type: ignore[arg-type]
        os.truncate(file, held.st_size)
        if forge:
            os.utime(file, ns=(held.st_atime_ns, held.st_mtime_ns))

    monkeypatch.setattr(dataset, "_gather", cut)
    with pytest.raises(UnfitData, match=r"a\.bin"):
        read(dataset, "sequential")
    dataset.close()


def test_cut_while_every_value_is_judged_or_committed_to(tmp_path: Path) -> None:
    dataset, file = opened("npy", tmp_path)
    blocks = dataset._blocks()
    next(blocks)
    os.truncate(file, 5000)
    for judge in (dataset.scan, lambda: RecordTree(dataset, bytes(32), tmp_path / "trees", "s")):
        with pytest.raises(UnfitData, match=r"x\.npy") as caught:
            judge()
        assert caught.value.code == "data-changed"
    dataset.close()


HAMMER = """
import random, sys, threading, time
from pathlib import Path
from data_holder.datasets import UnfitData
from tests.datasets.test_cut_files import dataset_of, opened, read

kind, seconds = sys.argv[1], float(sys.argv[3])
dataset, file = opened(kind, Path(sys.argv[2]))
content, expected = file.read_bytes(), {order: read(dataset, order) for order in ("sequential", "shuffled")}
records, good, refused = dataset.records, 0, 0
stop = threading.Event()

def owner():
    with file.open("r+b") as own:
        while not stop.is_set():
            own.truncate(random.choice((0, 5000, len(content) // 2)))
            time.sleep(random.random() * 0.002)
            own.seek(0)
            own.write(content)
            own.flush()
            time.sleep(random.random() * 0.1)

def reopened():
    while True:
        try:
            found = dataset_of(kind, file)
        except UnfitData:
            continue
        if found.records == records:  # as a visit asks as well
            return found

cutting = threading.Thread(target=owner, daemon=True)
cutting.start()
begun = time.monotonic()
while time.monotonic() < begun + seconds or not (good and refused):
    order = random.choice(("sequential", "shuffled"))
    try:
        assert read(dataset, order) == expected[order]
        good += 1
    except UnfitData as error:
        assert error.code == "data-changed", error
        refused += 1
        dataset.close()
        dataset = reopened()
stop.set()
cutting.join()
print(good, refused)
"""


def hammered(kind: str, folder: Path, seconds: float) -> None:
    script = [sys.executable, "-c", HAMMER, kind, str(folder), str(seconds)]
    done = subprocess.run(
        script, cwd=Path(__file__).parents[2], capture_output=True, text=True, timeout=120, check=False
    )
    assert done.returncode == 0, done.stderr[-2000:] or signal.Signals(-done.returncode)
    good, refused = map(int, done.stdout.split())
    assert good
    assert refused


@pytest.mark.parametrize("kind", ["npz", "nanogpt"])
def test_an_owner_who_cuts_and_restores_without_end(kind: str, tmp_path: Path) -> None:
    hammered(kind, tmp_path, 1.0)


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
def test_an_owner_who_cuts_and_restores_for_long(kind: str, tmp_path: Path) -> None:
    hammered(kind, tmp_path, 10.0)


def test_a_fault_that_is_not_ours_still_ends_the_process(tmp_path: Path) -> None:
    """Only mappings of datasets are met; whatever else faults is a bug, and no bug is hidden."""
    script = """
import mmap, os, sys
from pathlib import Path
from tests.datasets.test_cut_files import opened, read

dataset, _ = opened("text", Path(sys.argv[1]))
read(dataset, "sequential")
with open(Path(sys.argv[1]) / "other", "w+b") as other:
    other.truncate(1 << 20)
    mapped = mmap.mmap(other.fileno(), 1 << 20)
    other.truncate(0)
    print("before", flush=True)
    mapped[5]
"""
    command = [sys.executable, "-c", script, str(tmp_path)]
    done = subprocess.run(
        command, cwd=Path(__file__).parents[2], capture_output=True, text=True, timeout=60, check=False
    )
    assert done.stdout == "before\n"
    assert done.returncode == -signal.SIGBUS
