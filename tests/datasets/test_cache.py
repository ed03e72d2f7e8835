"""What is kept of a dataset: whole or not at all, of the file it is said to be of, and nothing of it left by a process that died."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
import pytest

from data_holder.datasets import (
    Dataset,
    DatasetOptions,
    RecordTree,
    UnfitData,
    arrays,
    containers,
    forget_converted,
    forget_tree,
    inspect_dataset,
    open_dataset,
    tables,
)
from data_holder.datasets import dataset as dataset_module
from data_holder.datasets.cache import kept, place
from data_holder.datasets.options import unhindered
from shared.claims.archive import open_archive
from shared.claims.program import ProgramManifest
from shared.claims.records import RecordField, RecordSchema
from tests.data_holder.holder_world import make_archive

PATIENCE_S = 60
FLAT = RecordSchema(fields=(RecordField(name="x", dtype="float32", shape=(2,)),))


def first_record(dataset: Dataset) -> list[float]:
    with dataset:
        record: list[float] = np.frombuffer(dataset.read_records(np.array([0])), "<f4").tolist()
        return record


class StoppedError(Exception):
    """What a reader is told in the tests."""


def stops_at(count: int) -> tuple[list[None], Callable[[], None]]:
    asked: list[None] = []

    def go_on() -> None:
        asked.append(None)
        if len(asked) == count:
            raise StoppedError

    return asked, go_on


def test_what_a_process_that_died_left_half_converted_goes_whatever_it_was_of(tmp_path: Path) -> None:
    """It holds records in the clear, and no dataset's removal would name it."""
    cache, path = tmp_path / "cache", tmp_path / "x.csv"
    path.write_text("a,b\n1,2\n")
    open_dataset(path, FLAT, options=DatasetOptions(cache_dir=cache)).close()
    (made,) = cache.glob("*.records")
    stem = made.name.rpartition("-")[0]
    (cache / f"{stem}.partial").write_bytes(b"records of a dataset that is still there")
    (cache / f"{'5f' * 12}-{'a3' * 8}.partial").write_bytes(b"records of one that is gone")
    assert forget_converted(cache, [path]) == 2
    assert list(cache.glob("*.[rp]*")) == [made]


def test_what_is_being_converted_is_not_taken_for_something_left(tmp_path: Path) -> None:
    begun, go_on = threading.Event(), threading.Event()

    def write(out: BinaryIO) -> None:
        out.write(b"be")
        out.flush()
        begun.set()
        assert go_on.wait(PATIENCE_S)
        out.write(b"ll")

    with ThreadPoolExecutor(1) as threads:
        making = threads.submit(kept, tmp_path, "stem", b"state", "records", write, go_on=unhindered)
        assert begun.wait(PATIENCE_S)
        assert forget_converted(tmp_path, []) == 0
        go_on.set()
        assert making.result().tobytes() == b"bell"
    assert not list(tmp_path.glob("*.partial"))


def test_a_session_s_half_made_tree_goes_with_its_tree(tmp_path: Path) -> None:
    (tmp_path / "s_1-00.tree").write_bytes(b"whole")
    (tmp_path / "s_1.partial").write_bytes(b"half")
    (tmp_path / "s_2.partial").write_bytes(b"another session's")
    forget_tree(tmp_path, "s_1")
    assert [path.name for path in tmp_path.iterdir()] == ["s_2.partial"]


def undeletable(folder: Path, name: str) -> Path:
    """A folder in a file's place: nobody may unlink that, whatever his rights."""
    (folder / name).mkdir(parents=True)
    return folder / name


def test_a_file_that_cannot_be_removed_keeps_no_other_one(tmp_path: Path) -> None:
    """What came behind it stayed for good: private records, of datasets that their operator had forgotten."""
    names = [f"{sort}-{'0' * 16}-{'0' * 16}.records" for sort in ("a", "b", "c")] + ["d-0.partial", "e-0.partial"]
    bad = [undeletable(tmp_path, names.pop(3)), undeletable(tmp_path, names.pop(0))]
    for name in names:
        (tmp_path / name).write_bytes(b"records")
    with pytest.raises(OSError, match=bad[1].name):
        forget_converted(tmp_path, [])
    assert sorted(tmp_path.iterdir()) == sorted(bad)


def test_a_tree_that_cannot_be_removed_keeps_no_other_one(tmp_path: Path) -> None:
    bad = undeletable(tmp_path, "s_1-00.tree")
    for name in ("s_1-01.tree", "s_1.partial"):
        (tmp_path / name).write_bytes(b"tree")
    with pytest.raises(OSError, match=bad.name):
        forget_tree(tmp_path, "s_1")
    assert list(tmp_path.iterdir()) == [bad]


def test_an_old_file_that_cannot_be_removed_hinders_no_new_one(tmp_path: Path) -> None:
    """It was removed before the new one had its name: every visit hashed the whole dataset, and failed."""
    bad, made = undeletable(tmp_path, "stem-00.tree"), list[bytes]()
    (tmp_path / "stem-01.tree").write_bytes(b"old")

    def write(out: BinaryIO) -> None:
        made.append(b"new")
        out.write(b"new")

    for _ in range(2):
        assert kept(tmp_path, "stem", b"state", "tree", write, go_on=unhindered).tobytes() == b"new"
    assert made == [b"new"], "it is kept"
    assert sorted(path.name for path in tmp_path.iterdir() if path != bad) == [
        place(tmp_path, "stem", b"state", "tree").name
    ]


def test_what_was_converted_of_a_files_former_content_goes_at_the_next_tidying(tmp_path: Path) -> None:
    """Of a process that died between the new one's name and the old one's end."""
    cache, path = tmp_path / "cache", tmp_path / "x.csv"
    path.write_text("a,b\n1,2\n")
    open_dataset(path, FLAT, options=DatasetOptions(cache_dir=cache)).close()
    (made,) = cache.glob("*.records")
    old = cache / f"{made.name.rpartition('-')[0]}-{'0' * 16}.records"
    old.write_bytes(b"records of before")
    os.utime(old, ns=(1, 1))
    assert forget_converted(cache, [path]) == 1
    assert list(cache.iterdir()) == [made]


def test_two_files_are_made_at_once_and_one_file_once(tmp_path: Path) -> None:
    both, made = threading.Barrier(2), []

    def write(name: str) -> Callable[[BinaryIO], None]:
        def act(out: BinaryIO) -> None:
            made.append(name)
            both.wait(PATIENCE_S)  # each waits until the other is being made, too
            out.write(name.encode())

        return act

    def make(name: str) -> bytes:
        return kept(tmp_path, name, b"state", "tree", write(name), go_on=unhindered).tobytes()

    with ThreadPoolExecutor(4) as threads:
        found = list(threads.map(make, ["one", "two", "one", "two"]))
    assert found == [b"one", b"two", b"one", b"two"]
    assert sorted(made) == ["one", "two"]
    assert len(list(tmp_path.iterdir())) == 2


def test_who_may_not_take_long_does_not_wait_for_another(tmp_path: Path) -> None:
    begun, go_on = threading.Event(), threading.Event()

    def write(out: BinaryIO) -> None:
        begun.set()
        assert go_on.wait(PATIENCE_S)

    _, at_once = stops_at(1)
    with ThreadPoolExecutor(2) as threads:
        threads.submit(kept, tmp_path, "stem", b"state", "tree", write, go_on=unhindered)
        assert begun.wait(PATIENCE_S)
        other = threads.submit(kept, tmp_path, "stem", b"state", "tree", write, go_on=at_once)
        try:
            assert isinstance(other.exception(PATIENCE_S), StoppedError)
        finally:
            go_on.set()


def test_a_conversion_of_a_file_that_changed_meanwhile_is_not_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It would be taken for the converted form of the file that is put back with its old date."""
    path, options = tmp_path / "x.csv", DatasetOptions(cache_dir=tmp_path / "cache")
    path.write_text("a,b\n" + "1,2\n" * 50)
    before, real = path.stat(), tables._convert

    def torn(*arguments: Any) -> None:
        with path.open("r+") as stream:
            stream.seek(len("a,b\n"))
            stream.write("9,9\n")
        real(*arguments)

    monkeypatch.setattr(tables, "_convert", torn)
    with pytest.raises(UnfitData) as refused:
        open_dataset(path, FLAT, options=options)
    assert refused.value.code == "data-changed"
    assert not list((tmp_path / "cache").iterdir())
    monkeypatch.undo()
    with path.open("r+") as stream:
        stream.write("a,b\n1,2\n")
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))
    assert first_record(open_dataset(path, FLAT, options=options)) == [1, 2]


def program() -> ProgramManifest:
    return open_archive(make_archive(2)).manifest


def _csv(folder: Path, go_on: Callable[[], None]) -> None:
    (folder / "x.csv").write_text("a,b\n" + "1,2\n" * 50)
    inspect_dataset(folder / "x.csv", program(), options=DatasetOptions(cache_dir=folder / "cache"), go_on=go_on)


def _packed(folder: Path, go_on: Callable[[], None]) -> None:
    np.savez_compressed(folder / "x.npz", x=np.ones((5000, 2), "<f4"))
    inspect_dataset(folder / "x.npz", program(), options=DatasetOptions(cache_dir=folder / "cache"), go_on=go_on)


def _scan(folder: Path, go_on: Callable[[], None]) -> None:
    np.save(folder / "x.npy", np.ones((5000, 2), "<f4"))
    inspect_dataset(folder / "x.npy", program(), go_on=go_on)


def _tree(folder: Path, go_on: Callable[[], None]) -> None:
    np.save(folder / "x.npy", np.ones((5000, 2), "<f4"))
    with open_dataset(folder / "x.npy", FLAT) as dataset:
        RecordTree(dataset, bytes(32), folder / "cache", "s", go_on=go_on)


@pytest.mark.parametrize("read", [_csv, _packed, _scan, _tree])
def test_whatever_reads_a_dataset_whole_asks_at_each_block_whether_to_go_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, read: Callable[[Path, Callable[[], None]], None]
) -> None:
    for module, name, value in (
        (tables, "ROWS", 5), (containers, "_COPY_BYTES", 4096), (dataset_module, "MAX_BLOCK_ROWS", 500),
        (arrays, "BLOCK_BYTES", 4096),
    ):  # fmt: skip
        monkeypatch.setattr(module, name, value)
    asked, go_on = stops_at(5)
    with pytest.raises(StoppedError):
        read(tmp_path, go_on)
    assert len(asked) == 5
    assert not list((tmp_path / "cache").glob("*"))
