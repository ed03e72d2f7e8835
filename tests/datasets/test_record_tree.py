"""The commitment tree of a dataset: root and proofs of the slow reference, kept whole or in part, built once per state of the files."""

from __future__ import annotations

import errno
import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from data_holder.datasets import Dataset, RecordTree, UnfitData, forget_tree, open_dataset, record_tree, tree_is_kept
from data_holder.datasets import dataset as dataset_module
from shared.canonical import keyed_blake3
from shared.claims.records import RecordField, RecordSchema
from shared.claims.visit import CursorRange
from shared.errors import ConfigurationError
from shared.protocol.membership import check_membership
from shared.protocol.record_order import records_of
from tests import dataset_tree

SALT = bytes(range(32))
TEXT = RecordSchema(fields=(RecordField(name="tokens", dtype="uint8", shape=(9,)),))
FLAT = RecordSchema(fields=(RecordField(name="x", dtype="float32", shape=(3,)),))


@pytest.fixture
def thin(monkeypatch: pytest.MonkeyPatch) -> None:
    """No room for leaves: the lower levels are made again from the records."""
    monkeypatch.setattr(record_tree, "FREE_BYTES", 400)
    monkeypatch.setattr(record_tree, "SHARE", 1 << 40)
    monkeypatch.setattr(dataset_module, "MAX_BLOCK_ROWS", 7)  # and blocks that end anywhere


def text_of(n: int) -> bytes:
    return np.random.default_rng(n).integers(0, 256, n * 8 + 1, np.uint8).tobytes()


def samples(text: bytes) -> list[bytes]:
    return [text[at : at + 9] for at in range(0, len(text) - 8, 8)]


def open_text(tmp_path: Path, n: int) -> Dataset:
    (tmp_path / "t.txt").write_bytes(text_of(n))
    return open_dataset(tmp_path / "t.txt", TEXT, "bytes")


def check(tree: RecordTree, records: list[bytes], cursor: CursorRange) -> None:
    """Root and proof are the reference's, and a GPU accepts them."""
    indexes = records_of(cursor, len(records)).tolist()
    assert tree.root == dataset_tree.root(SALT, records)
    assert tree.proof(cursor) == dataset_tree.proof(SALT, records, indexes)
    leaves = [dataset_tree.leaf(SALT, index, records[index]) for index in records_of(cursor, len(records)).tolist()]
    assert tree.shown(cursor) == (tree.proof(cursor), b"".join(leaves))
    data = memoryview(b"".join(records[i] for i in indexes))
    check_membership(data, tree.proof(cursor), tree.root, salt=SALT, cursor=cursor, records=len(records))


@pytest.mark.parametrize("n", [1, 2, 3, 7, 8, 9, 100, 1000])
def test_root_and_proofs(tmp_path: Path, n: int) -> None:
    with open_text(tmp_path, n) as dataset:
        tree = RecordTree(dataset, SALT, tmp_path / "trees", "s")
        for way in ("sequential", "shuffled"):
            check(tree, samples(text_of(n)), CursorRange(start=n // 2, count=7, order=way, seed=3))


@pytest.mark.usefixtures("thin")
@given(n=st.integers(1, 300), start=st.integers(0, 500), count=st.integers(1, 40), shuffled=st.booleans())
@settings(
    max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow]
)
def test_a_tree_kept_in_part_gives_the_same(tmp_path: Path, n: int, start: int, count: int, shuffled: bool) -> None:
    with open_text(tmp_path, n) as dataset:
        tree = RecordTree(dataset, SALT, tmp_path / "trees", "s")
        assert (record_tree.lowest_kept(n, 9) > 0) == (n > 6)
        check(
            tree,
            samples(text_of(n)),
            CursorRange(start=start, count=count, order="shuffled" if shuffled else "sequential"),
        )


def test_every_field_of_every_record_counts(tmp_path: Path) -> None:
    values = np.random.default_rng(1).standard_normal((11, 3)).astype("<f4")
    np.savez(tmp_path / "x.npz", x=values)
    with open_dataset(tmp_path / "x.npz", FLAT) as dataset:
        tree = RecordTree(dataset, SALT, tmp_path / "trees", "s")
        check(tree, [row.tobytes() for row in values], CursorRange(start=0, count=4, order="shuffled"))
        other = RecordTree(
            dataset, b"\1" * 32, tmp_path / "trees", "s"
        )  # another salt is another tree, under the same stem too
        assert other.root != tree.root
        assert RecordTree(dataset, SALT, tmp_path / "trees", "s").root == tree.root


def _counted(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    hashed, real = [], record_tree.leaf_hashes

    def counting(salt: bytes, indexes: Any, records: memoryview) -> list[bytes]:
        hashed.append(len(indexes))
        return real(salt, indexes, records)

    monkeypatch.setattr(record_tree, "leaf_hashes", counting)
    return hashed


def test_the_same_files_are_hashed_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    hashed, folder = _counted(monkeypatch), tmp_path / "trees"
    with open_text(tmp_path, 100) as dataset:
        root = RecordTree(dataset, SALT, folder, "s").root
    assert sum(hashed) == 100
    (file,) = folder.glob("s-*.tree")
    assert file.stat().st_mode & 0o077 == 0
    with open_dataset(tmp_path / "t.txt", TEXT, "bytes") as again:  # a restart: only the files' identity is read
        assert RecordTree(again, SALT, folder, "s").root == root
    assert sum(hashed) == 100
    os.utime(tmp_path / "t.txt", ns=(1, 1))  # touched, not changed: hashed again, the same root
    with open_dataset(tmp_path / "t.txt", TEXT, "bytes") as touched:
        assert RecordTree(touched, SALT, folder, "s").root == root
    assert sum(hashed) == 200
    (tmp_path / "t.txt").write_bytes(text_of(100)[:-1] + b"x")
    with open_dataset(tmp_path / "t.txt", TEXT, "bytes") as changed:
        assert RecordTree(changed, SALT, folder, "s").root != root
    assert len(list(folder.glob("*.tree"))) == 1  # the old states are gone
    forget_tree(folder, "s")
    assert not list(folder.glob("*.tree"))


@pytest.mark.parametrize("spoil", [lambda b: b[:-1], lambda b: b"", lambda b: b"other" + b[5:]])
def test_a_file_that_is_no_tree_of_ours_is_made_again(tmp_path: Path, spoil: Any) -> None:
    folder = tmp_path / "trees"
    with open_text(tmp_path, 20) as dataset:
        root = RecordTree(dataset, SALT, folder, "s").root
        (file,) = folder.glob("s-*.tree")
        file.write_bytes(spoil(file.read_bytes()))
        assert RecordTree(dataset, SALT, folder, "s").root == root
        assert RecordTree(dataset, SALT, folder, "s").proof(CursorRange(start=0, count=1))


def test_a_file_in_a_trees_place_that_cannot_be_removed_is_said_plainly(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It was the file system's own error, which says neither what is wrong nor what to do."""
    folder = tmp_path / "trees"
    with open_text(tmp_path, 20) as dataset:
        RecordTree(dataset, SALT, folder, "s").close()
        (file,) = folder.glob("s-*.tree")
        file.write_bytes(b"")

        def unlink(path: Path, missing_ok: bool = False) -> None:
            raise PermissionError(errno.EPERM, "Operation not permitted", str(path))

        monkeypatch.setattr(Path, "unlink", unlink)
        with pytest.raises(ConfigurationError, match="cannot keep tree") as refused:
            RecordTree(dataset, SALT, folder, "s")
    assert refused.value.code == "dataset-cache"


@pytest.mark.parametrize("n", [1, 2, 7, 100])
@pytest.mark.parametrize("kept_from", ["leaves", "above"])
def test_whatever_is_damaged_in_a_tree_contradicts_the_rest(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, n: int, kept_from: str
) -> None:
    if kept_from == "above":
        monkeypatch.setattr(record_tree, "FREE_BYTES", 400)
        monkeypatch.setattr(record_tree, "SHARE", 1 << 40)
    monkeypatch.setattr(record_tree, "TOGETHER", 4)
    with open_text(tmp_path, n) as dataset:
        tree = RecordTree(dataset, SALT, tmp_path / "trees", "s")
        assert tree.agrees()
        (file,) = (tmp_path / "trees").glob("*.tree")
        whole = file.read_bytes()
        for at in range(32, len(whole), 32) if n > 1 else ():  # a tree of one node has nothing to hold it against
            file.write_bytes(whole[:at] + bytes([whole[at] ^ 1]) + whole[at + 1 :])
            assert not RecordTree(dataset, SALT, tmp_path / "trees", "s").agrees(), at


def test_only_a_long_look_at_a_tree_asks_whether_to_go_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[None] = []
    with open_text(tmp_path, 100) as dataset:
        tree = RecordTree(dataset, SALT, tmp_path / "trees", "s")
        assert tree.agrees(lambda: asked.append(None))
        assert not asked
        monkeypatch.setattr(record_tree, "TOGETHER", 16)
        assert tree.agrees(lambda: asked.append(None))
        assert len(asked) == 6 + 3 + 1  # of 100, 50 and 25 nodes


def test_a_tree_of_an_earlier_rule_is_not_believed(tmp_path: Path) -> None:
    folder = tmp_path / "trees"
    with open_text(tmp_path, 20) as dataset:
        root = RecordTree(dataset, SALT, folder, "s").root
        (file,) = folder.glob("s-*.tree")
        kept = bytearray(file.read_bytes())
        kept[:8], kept[-32:] = b"gputtree", bytes(32)  # as the first rule had it
        file.write_bytes(kept)
        assert RecordTree(dataset, SALT, folder, "s").root == root
        older = folder / f"s-{keyed_blake3(SALT, dataset.identity).hex()[:16]}.tree"  # and where
        file.rename(older)
        older.write_bytes(kept)
        assert not tree_is_kept(dataset, SALT, folder, "s")
        assert RecordTree(dataset, SALT, folder, "s").root == root
        assert list(folder.glob("s-*.tree")) == [file]


def test_data_that_changes_under_the_hand_gives_no_tree(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dataset_module, "MAX_BLOCK_ROWS", 7)
    real = record_tree.leaf_hashes

    def meddle(salt: bytes, indexes: Any, records: memoryview) -> list[bytes]:
        os.utime(tmp_path / "t.txt", ns=(1, 1))
        return real(salt, indexes, records)

    with open_text(tmp_path, 100) as dataset:
        monkeypatch.setattr(record_tree, "leaf_hashes", meddle)
        with pytest.raises(UnfitData) as caught:
            RecordTree(dataset, SALT, tmp_path / "trees", "s")
    assert caught.value.code == "data-changed"
    assert not [path for path in (tmp_path / "trees").iterdir() if path.name != ".lock"]


def test_a_folder_that_cannot_keep_a_tree_is_said_plainly(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with open_text(tmp_path, 3) as dataset, pytest.raises(ConfigurationError) as caught:
        RecordTree(dataset, SALT, tmp_path / "file", "s")
    assert caught.value.code == "dataset-cache"


def test_another_way_to_read_the_same_files_is_another_dataset(tmp_path: Path) -> None:
    from data_holder.datasets import DatasetOptions

    for name in ("a", "b"):
        (tmp_path / f"{name}.txt").write_bytes(text_of(20))
    ways = [DatasetOptions(separator=0), DatasetOptions(separator=1), DatasetOptions(suffixes=(".txt",))]
    seen = set()
    for way in ways:
        with open_dataset(tmp_path, TEXT, "bytes", options=way) as dataset:
            seen.add(dataset.identity)
    assert len(seen) == 3
