"""Text and token shards: which bytes a sample is, over file borders, wrapping and splitting; checked against plain Python."""

from __future__ import annotations

import os
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from data_holder.datasets import Dataset, DatasetOptions, UnfitData, mappings, open_dataset
from shared.claims.records import RecordField, RecordSchema
from shared.claims.visit import CursorRange
from shared.protocol.record_order import order

FRESH = settings(
    max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow]
)


def tokens_schema(t: int, dtype: str = "uint8", **limits: float) -> RecordSchema:
    return RecordSchema(fields=(RecordField(name="tokens", dtype=dtype, shape=(t + 1,), **limits),))  # type: ignore[arg-type]  # literal by parameter


def take(dataset: Dataset, cursor: CursorRange) -> bytes:
    out = bytearray(cursor.count * dataset.record_bytes)
    dataset.read_into(cursor, out)
    return bytes(out)


def samples(stream: bytes, t: int) -> list[bytes]:
    return [stream[i * t : i * t + t + 1] for i in range((len(stream) - 1) // t)]


def shard(tokens: np.ndarray, magic: int = 20240520, version: int = 1, count: int | None = None) -> bytes:
    header = np.zeros(256, "<i4")
    header[:3] = magic, version, len(tokens) if count is None else count
    return header.tobytes() + tokens.astype("<u2").tobytes()


@given(data=st.data())
@FRESH
def test_a_folder_is_one_stream_in_any_order_and_any_cut(tmp_path: Path, data: st.DataObject) -> None:
    folder = tmp_path / os.urandom(6).hex()
    contents = data.draw(
        st.dictionaries(st.sampled_from(["a", "b/c", "b.txt", "b/a/z", "Z", "é"]), st.binary(max_size=60), min_size=1)
    )
    for name, content in contents.items():
        path = folder / f"{name}.txt"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)
    names = sorted((f"{n}.txt" for n in contents), key=os.fsencode)
    stream = b"\0".join(contents[n.removesuffix(".txt")] for n in names if contents[n.removesuffix(".txt")])
    t = data.draw(st.integers(1, 20))
    expected = samples(stream, t)
    if not expected:
        with pytest.raises(UnfitData) as refused:
            open_dataset(folder, tokens_schema(t), "bytes")
        assert refused.value.code == ("data-too-short" if stream else "data-empty")
        return
    n = len(expected)
    with open_dataset(folder, tokens_schema(t), "bytes") as dataset:
        assert dataset.records == n
        cursor = CursorRange(
            start=data.draw(st.integers(0, 5 * n)), count=data.draw(st.integers(1, 3 * n)),
            order=data.draw(st.sampled_from(["sequential", "shuffled"])), seed=7,
        )  # fmt: skip
        positions = np.arange(cursor.start, cursor.start + cursor.count, dtype=np.int64)
        which = positions % n if cursor.order == "sequential" else order(7, n).records(positions)
        whole = take(dataset, cursor)
        assert whole == b"".join(expected[i] for i in which.tolist())
        chunk = data.draw(st.integers(1, len(whole) + 3))
        parts = list(dataset.read(cursor, chunk))
        assert b"".join(parts) == whole
        assert all(len(p) == chunk for p in parts[:-1])
        cuts = sorted({0, len(whole), *data.draw(st.lists(st.integers(0, len(whole)), max_size=4))})
        for a, b in pairwise(cuts):
            out = bytearray(b - a)
            dataset.read_slice(cursor, a, out)
            assert out == whole[a:b]
        split = data.draw(st.integers(0, cursor.count - 1))
        if split:
            left = cursor.model_copy(update={"count": split})
            right = cursor.model_copy(update={"start": cursor.start + split, "count": cursor.count - split})
            assert take(dataset, left) + take(dataset, right) == whole


@pytest.mark.parametrize("dtype", ["uint8", "uint16", "int32", "int64"])
def test_text_in_every_integer_dtype(tmp_path: Path, dtype: str) -> None:
    text = bytes(range(256))
    (tmp_path / "t.txt").write_bytes(text)
    with open_dataset(tmp_path / "t.txt", tokens_schema(15, dtype), "bytes") as dataset:
        got = np.frombuffer(take(dataset, CursorRange(start=0, count=17)), np.dtype(dtype).newbyteorder("<")).reshape(
            17, 16
        )
        assert dataset.records == 17
        assert got.tolist() == [list(text[i * 15 : i * 15 + 16]) for i in range(17)]
        assert dataset.statistics().fields == {}


def test_sequential_samples_are_llmc_batches(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    tokens = rng.integers(0, 50257, 1000)
    (tmp_path / "x.bin").write_bytes(shard(tokens))
    b, t = 4, 16
    with open_dataset(tmp_path / "x.bin", tokens_schema(t, "uint16", min=0, max=50256), "external") as dataset:
        assert dataset.kind == "llmc"
        dataset.check()
        for step in range(5):
            got = np.frombuffer(take(dataset, CursorRange(start=step * b, count=b)), "<u2").reshape(b, t + 1)
            read = tokens[step * b * t : step * b * t + b * t + 1]  # what llm.c's loader reads
            assert (got[:, :-1] == read[:-1].reshape(b, t)).all()
            assert (got[:, 1:] == read[1:].reshape(b, t)).all()
        assert dataset.statistics().fields == {"tokens": (int(tokens.min()), int(tokens.max()))}


def test_no_sample_spans_two_shards(tmp_path: Path) -> None:
    parts = [np.arange(0, 25), np.arange(100, 104), np.arange(200, 221)]  # the middle one has not one sample
    for i, part in enumerate(parts):
        (tmp_path / f"x_{i}.bin").write_bytes(shard(part))
    with open_dataset(tmp_path, tokens_schema(10, "int32"), "external") as dataset:
        got = np.frombuffer(take(dataset, CursorRange(start=0, count=4)), "<i4").reshape(4, 11)
        assert dataset.records == 4
        assert got[:, 0].tolist() == [0, 10, 200, 210]


def test_nanogpt_raw_tokens_and_a_header_read_as_tokens_when_told(tmp_path: Path) -> None:
    (tmp_path / "raw.bin").write_bytes(np.arange(100, dtype="<u2").tobytes())
    with open_dataset(tmp_path / "raw.bin", tokens_schema(9, "uint16"), "external") as dataset:
        assert (dataset.kind, dataset.records) == ("nanogpt", 11)
        assert np.frombuffer(take(dataset, CursorRange(start=10, count=1)), "<u2").tolist() == list(range(90, 100))
    (tmp_path / "llmc.bin").write_bytes(shard(np.arange(100)))
    with open_dataset(tmp_path / "llmc.bin", tokens_schema(9, "uint16"), options=DatasetOptions("nanogpt")) as dataset:
        assert dataset.records == (512 + 100 - 1) // 9


@pytest.mark.parametrize("small", [0, 1 << 18])  # mapped, or read
def test_more_files_than_are_kept(tmp_path: Path, small: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(mappings, "SMALL_FILE", small)
    monkeypatch.setattr(mappings, "SMALL_FILES_BYTES", 50)
    monkeypatch.setattr(mappings, "MAX_MAPPINGS", 3)
    descriptors = len(os.listdir("/proc/self/fd"))
    stream = b""
    for i in range(200):
        (tmp_path / f"{i:03}.txt").write_bytes(bytes([i]) * 11)
        stream += (b"\xff" if i else b"") + bytes([i]) * 11
    with open_dataset(tmp_path, tokens_schema(5), "bytes", options=DatasetOptions(separator=255)) as dataset:
        cursor = CursorRange(start=0, count=dataset.records, order="shuffled", seed=3)
        take(dataset, cursor)
        assert len(os.listdir("/proc/self/fd")) <= descriptors + 3
        which = order(3, dataset.records).records(np.arange(dataset.records, dtype=np.int64)).tolist()
        assert take(dataset, cursor) == b"".join(samples(stream, 5)[i] for i in which)


def test_suffixes_dot_files_and_separator(tmp_path: Path) -> None:
    for name, content in {
        "a.py": b"aaaa",
        "b.pyc": b"\0\0",
        ".env": b"secret",
        ".git/x.py": b"git",
        "c.py": b"cc",
        "d.py": b"",
    }.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_bytes(content)
    with open_dataset(
        tmp_path, tokens_schema(6), "bytes", options=DatasetOptions(suffixes=(".py",), separator=10)
    ) as dataset:
        assert take(dataset, CursorRange(start=0, count=1)) == b"aaaa\ncc"


def test_room_of_another_length_is_refused(tmp_path: Path) -> None:
    (tmp_path / "t").write_bytes(bytes(100))
    with open_dataset(tmp_path, tokens_schema(9), "bytes") as dataset:
        for length in (19, 21):
            with pytest.raises(ValueError, match="room"):
                dataset.read_into(CursorRange(start=0, count=2), bytearray(length))
        with pytest.raises(ValueError, match="cursor of 20"):
            dataset.read_slice(CursorRange(start=0, count=2), 15, bytearray(6))
    with pytest.raises(ValueError, match="closed"):
        take(dataset, CursorRange(start=0, count=1))
