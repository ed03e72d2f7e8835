"""Records that lie in their file as they are sent are used where they lie: the same bytes as those that are read, or none at all."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from safetensors.numpy import save_file

from data_holder.datasets import Dataset, UnfitData, open_dataset
from shared.claims.records import RecordField, RecordSchema
from shared.claims.visit import CursorRange
from shared.crypto.aead import SealingChannel

RECORDS, WIDTH = 40, 2048
LONG = RecordSchema(fields=(RecordField(name="x", dtype="float32", shape=(WIDTH,)),))
SIZE = LONG.record_bytes


def values(dtype: str = "<f4") -> np.ndarray:
    return np.random.default_rng(2).standard_normal((RECORDS, WIDTH)).astype(dtype)


@pytest.fixture(scope="module")
def dataset(tmp_path_factory: pytest.TempPathFactory) -> Dataset:
    path = tmp_path_factory.mktemp("lying") / "x.npy"
    np.save(path, values())
    return open_dataset(path, LONG)


@given(start=st.integers(0, 3 * RECORDS), count=st.integers(1, 2 * RECORDS), data=st.data())
def test_what_lies_there_is_what_would_be_read(dataset: Dataset, start: int, count: int, data: st.DataObject) -> None:
    cursor = CursorRange(start=start, count=count)
    offset = data.draw(st.integers(0, count * SIZE - 1))
    length = data.draw(st.integers(1, count * SIZE - offset))
    read = bytearray(length)
    dataset.read_slice(cursor, offset, read)
    lying = dataset.lying(cursor, offset, length)
    first, last = (start * SIZE + offset) % (RECORDS * SIZE), length
    assert (lying is None) is (first + last > RECORDS * SIZE)  # it goes round the dataset's end
    if lying is not None:
        assert lying == read
        assert lying.readonly


@given(count=st.integers(2, RECORDS), seed=st.integers(0, 2**53 - 1))
def test_shuffled_records_are_read_in_one_pass_and_are_the_same(dataset: Dataset, count: int, seed: int) -> None:
    cursor = CursorRange(start=3, count=count, order="shuffled", seed=seed)
    assert dataset.lying(cursor, 0, SIZE) is None
    out = bytearray(count * SIZE)
    dataset.read_into(cursor, out)
    rows, order = values(), dataset._named(cursor, 0, count)
    assert out == b"".join(rows[index].tobytes() for index in order)


@pytest.mark.parametrize("kind", ["npz", "safetensors"])
def test_they_lie_in_every_container_that_keeps_arrays_as_they_are(tmp_path: Path, kind: str) -> None:
    path = tmp_path / f"d.{kind}"
    np.savez(path, x=values()) if kind == "npz" else save_file({"x": values()}, path)
    with open_dataset(path, LONG) as found:
        lying = found.lying(CursorRange(start=0, count=RECORDS), SIZE, SIZE)
        assert lying == values()[1].tobytes()
        del lying


def test_what_has_to_be_put_together_or_converted_does_not_lie_there(tmp_path: Path) -> None:
    two = RecordSchema(fields=(*LONG.fields, RecordField(name="y", dtype="int64")))
    np.savez(tmp_path / "two.npz", x=values(), y=np.arange(RECORDS))
    np.save(tmp_path / "half.npy", values("<f2"))
    np.save(tmp_path / "big.npy", values(">f4"))
    np.save(tmp_path / "columns.npy", np.asfortranarray(values()))
    cursor = CursorRange(start=0, count=RECORDS)
    for name, schema in (("two.npz", two), ("half.npy", LONG), ("big.npy", LONG), ("columns.npy", LONG)):
        with open_dataset(tmp_path / name, schema) as found:
            assert found.lying(cursor, 0, SIZE) is None, name


def test_a_file_cut_short_under_the_cipher_is_not_believed(tmp_path: Path) -> None:
    """The cipher meets pages that are gone, outside of the interpreter; it seals zeros, and nobody sends them."""
    np.save(tmp_path / "x.npy", values())
    found = open_dataset(tmp_path / "x.npy", LONG)
    lying = found.lying(CursorRange(start=0, count=RECORDS), 0, RECORDS * SIZE)
    assert lying is not None
    found.believe()
    os.truncate(tmp_path / "x.npy", 8192)
    assert len(SealingChannel(bytes(range(32)), label="test").seal(lying, b"")) == RECORDS * SIZE + 16
    with pytest.raises(UnfitData):
        found.believe()
    del lying
    found.close()


def test_a_file_written_to_since_is_not_believed(tmp_path: Path) -> None:
    np.save(tmp_path / "x.npy", values())
    with open_dataset(tmp_path / "x.npy", LONG) as found:
        assert found.lying(CursorRange(start=0, count=1), 0, SIZE) is not None
        os.utime(tmp_path / "x.npy", ns=(1, 1))
        with pytest.raises(UnfitData):
            found.believe()
    with pytest.raises(ValueError, match="closed"):
        found.lying(CursorRange(start=0, count=1), 0, SIZE)
