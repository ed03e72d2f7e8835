"""What is refused before a byte is read: absent, unreadable, escaping, empty, short, of the wrong kind, changed."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pytest

from data_holder.datasets import DatasetOptions, RecordTree, Tokenizer, UnfitData, open_dataset
from data_holder.datasets.readers import READERS
from shared.claims.records import RecordField, RecordSchema
from shared.claims.visit import CursorRange
from shared.errors import ConfigurationError, InvalidData

TOKENS = RecordSchema(fields=(RecordField(name="tokens", dtype="uint16", shape=(9,)),))
BYTES = RecordSchema(fields=(RecordField(name="tokens", dtype="uint8", shape=(9,)),))
LABELLED = RecordSchema(
    fields=(RecordField(name="x", dtype="float32", shape=(2,)), RecordField(name="y", dtype="int64"))
)


def refused(path: Path, schema: RecordSchema, tokenizer: Tokenizer, options: DatasetOptions | None = None) -> UnfitData:
    with pytest.raises(UnfitData) as caught:
        open_dataset(path, schema, tokenizer, options=options or DatasetOptions())
    assert isinstance(caught.value, InvalidData)
    assert caught.value.status == 422
    return caught.value


def header(magic: int, version: int, count: int, tokens: int) -> bytes:
    numbers = np.zeros(256, "<i4")
    numbers[:3] = magic, version, count
    return numbers.tobytes() + bytes(2 * tokens)


BAD_SHARDS = {
    "cut header": (b"\x88\xd8\x34\x01" + bytes(96), "data-malformed", "shorter than a shard header"),
    "version": (header(20240520, 2, 20, 20), "data-malformed", "version 2"),
    "cut": (header(20240520, 1, 21, 20), "data-malformed", "says 21 tokens and the file has room for 20"),
    "negative": (header(20240520, 1, -1, 20), "data-malformed", "says -1"),
    "short": (header(20240520, 1, 8, 8), "data-too-short", "holds 8 tokens in a row, and one sample needs 9"),
    "no tokens": (header(20240520, 1, 0, 0), "data-too-short", "holds 0 tokens"),
    "odd raw": (bytes(41), "data-malformed", "half a token"),
    "empty raw": (b"", "data-empty", "not one byte"),
    "short raw": (bytes(16), "data-too-short", "holds 8 tokens"),
}


@pytest.mark.parametrize("fault", BAD_SHARDS)
def test_shards(tmp_path: Path, fault: str) -> None:
    content, code, reason = BAD_SHARDS[fault]
    (tmp_path / "s.bin").write_bytes(content)
    for path in (tmp_path / "s.bin", tmp_path):
        error = refused(path, TOKENS, "external")
        assert error.code == code
        assert reason in error.detail


def test_a_folder_with_one_foreign_shard(tmp_path: Path) -> None:
    (tmp_path / "a.bin").write_bytes(header(20240520, 1, 20, 20))
    (tmp_path / "b.bin").write_bytes(header(20240801, 7, 20, 20))
    error = refused(tmp_path, TOKENS, "external")
    assert error.finding.file == "b.bin"
    assert "20240520" in error.detail


def test_tokens_beyond_the_vocabulary_name_the_offset(tmp_path: Path) -> None:
    tokens = np.zeros(100, "<u2")
    tokens[63] = 4242
    (tmp_path / "s.bin").write_bytes(tokens.tobytes())
    schema = RecordSchema(fields=(RecordField(name="tokens", dtype="uint16", shape=(9,), min=0, max=99),))
    with open_dataset(tmp_path, schema, "external") as dataset, pytest.raises(UnfitData) as caught:
        dataset.check()
    assert (caught.value.finding.file, caught.value.finding.row) == ("s.bin", 63)
    assert "4242" not in caught.value.detail


def test_tokens_below_the_range(tmp_path: Path) -> None:
    (tmp_path / "t.txt").write_bytes(b"aaaaa\naaaaaa")
    schema = RecordSchema(fields=(RecordField(name="tokens", dtype="uint8", shape=(9,), min=32),))
    with open_dataset(tmp_path, schema, "bytes") as dataset:
        assert [f.row for f in dataset.scan()[0]] == [5]


def test_bytes_beyond_a_narrow_vocabulary(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_bytes(b"plain ascii text")
    (tmp_path / "b.txt").write_bytes("plain ümlaut".encode())
    schema = RecordSchema(fields=(RecordField(name="tokens", dtype="uint8", shape=(9,), min=0, max=127),))
    with open_dataset(tmp_path, schema, "bytes") as dataset:
        found, _ = dataset.scan()
    assert [(f.file, f.row) for f in found] == [("b.txt", 6), ("b.txt", 7)]


WRONG_KIND: dict[str, tuple[str, bytes, RecordSchema, Tokenizer, str]] = {
    "uint8 program, uint16 tokens": ("s.bin", bytes(100), BYTES, "external", "data-wrong-type"),
    "label program, token shard": ("s.bin", header(20240520, 1, 20, 20), LABELLED, "none", "data-schema-unsupported"),
    "label program, text": ("s.txt", b"words", LABELLED, "none", "data-unknown-format"),
    "token program, text": ("s.txt", b"words" * 10, TOKENS, "external", "data-unknown-format"),
    "raw shard unasked": ("s.bin", bytes(100), TOKENS, "none", "data-unknown-format"),
    "no numpy": ("s.npy", b"\x93NUMPY\x09\x00garbage", BYTES, "none", "data-malformed"),
    "no zip": ("s.npz", b"PK\x03\x04garbage", BYTES, "none", "data-malformed"),
    "no safetensors": ("s.safetensors", b"\xff" * 20, BYTES, "none", "data-malformed"),
    "empty npz": ("s.npz", b"", BYTES, "none", "data-malformed"),
    "empty text": ("s.txt", b"", BYTES, "bytes", "data-empty"),
    "short text": ("s.txt", b"12345678", BYTES, "bytes", "data-too-short"),
}


@pytest.mark.parametrize("fault", WRONG_KIND)
def test_wrong_kinds(tmp_path: Path, fault: str) -> None:
    name, content, schema, tokenizer, code = WRONG_KIND[fault]
    (tmp_path / name).write_bytes(content)
    error = refused(tmp_path / name, schema, tokenizer)
    assert error.code == code
    assert error.finding.file == name


def test_absent_and_empty_folder(tmp_path: Path) -> None:
    assert refused(tmp_path / "none", BYTES, "bytes").code == "data-not-found"
    (tmp_path / "empty").mkdir()
    assert refused(tmp_path / "empty", BYTES, "bytes").code == "data-empty"
    (tmp_path / "empty" / "nothing.txt").write_bytes(b"")
    (tmp_path / "empty" / ".hidden").write_bytes(b"x" * 100)
    assert refused(tmp_path / "empty", BYTES, "bytes").code == "data-empty"
    assert refused(tmp_path / "empty", TOKENS, "external").code == "data-unknown-format"
    assert refused(tmp_path / "empty", BYTES, "bytes", DatasetOptions(suffixes=(".md",))).code == "data-empty"


def test_a_fifo_neither_blocks_nor_passes(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_bytes(b"x" * 100)
    os.mkfifo(tmp_path / "pipe")
    assert "not a regular file" in refused(tmp_path, BYTES, "bytes").detail
    assert refused(tmp_path / "pipe", BYTES, "bytes").code == "data-unreadable"


@contextmanager
def as_nobody(unreadable: Path) -> Iterator[None]:
    """Take the right to read `unreadable` away, also from root."""
    unreadable.chmod(0)
    root = os.geteuid() == 0
    if root:
        os.seteuid(65534)
    try:
        yield
    finally:
        if root:
            os.seteuid(0)
        unreadable.chmod(0o700)


@pytest.mark.parametrize("what", ["file", "folder"])
def test_unreadable(tmp_path: Path, what: str) -> None:
    for parent in [tmp_path, *tmp_path.parents][:4]:  # pytest's own folders, one more under xdist
        if parent.owner() == "root" and os.geteuid() == 0:
            parent.chmod(0o755)
    (tmp_path / "a.txt").write_bytes(b"x" * 100)
    target = tmp_path / "locked"
    if what == "file":
        target.write_bytes(b"x")
    else:
        target.mkdir()
    with as_nobody(target):
        error = refused(tmp_path, BYTES, "bytes")
    assert error.code == "data-unreadable"
    assert error.finding.file == "locked"
    assert "Permission denied" in error.detail


def test_links_never_lead_out(tmp_path: Path) -> None:
    outside, folder = tmp_path / "outside", tmp_path / "folder"
    outside.mkdir()
    folder.mkdir()
    (outside / "secret.txt").write_bytes(b"S" * 100)
    (folder / "a.txt").write_bytes(b"a" * 100)
    (folder / "same.txt").symlink_to("a.txt")
    (folder / "loop").symlink_to(".", target_is_directory=True)
    with open_dataset(folder, BYTES, "bytes") as dataset:
        assert dataset.records == 99 // 8  # inner links add nothing and do not loop
    for link, target in [
        ("out.txt", outside / "secret.txt"),
        ("out", outside),
        ("up", Path("../outside")),
        ("gone", Path("../nowhere")),
    ]:
        (folder / link).symlink_to(target)
        error = refused(folder, BYTES, "bytes")
        assert (error.code, error.finding.file) == ("data-link-escapes", link)
        (folder / link).unlink()
    np.save(outside / "x.npy", np.zeros((3, 2), np.float32))
    np.save(folder / "y.npy", np.zeros(3, np.int64))
    (folder / "x.npy").symlink_to(outside / "x.npy")
    assert refused(folder, LABELLED, "none").code == "data-unreadable"
    (folder / "s.bin").symlink_to(outside / "secret.txt")
    assert refused(folder, TOKENS, "external", DatasetOptions("llmc")).code == "data-link-escapes"


def test_a_folder_swapped_for_a_link_after_opening(tmp_path: Path) -> None:
    inner, outside = tmp_path / "d" / "inner", tmp_path / "outside"
    for folder, byte in ((inner, b"a"), (outside, b"S")):
        folder.mkdir(parents=True)
        (folder / "t.txt").write_bytes(byte * 100)
    with open_dataset(tmp_path / "d", BYTES, "bytes") as dataset:
        inner.rename(tmp_path / "away")
        inner.symlink_to(outside, target_is_directory=True)
        out = bytearray(9)
        with pytest.raises(UnfitData) as caught:
            dataset.read_into(CursorRange(start=0, count=1), out)
        assert caught.value.code == "data-changed"
        assert out == bytes(9)


@pytest.mark.parametrize("name", ["t.txt", "large.txt", "x.npy"])
def test_data_that_changes_while_open(tmp_path: Path, name: str) -> None:
    path = tmp_path / name
    if name == "t.txt":
        path.write_bytes(b"a" * 100)
    elif name == "large.txt":
        path.write_bytes(b"a" * 1_000_000)
    else:
        np.save(path, np.zeros((11, 9), np.uint8))
    with open_dataset(path, BYTES, "bytes") as dataset:
        out = bytearray(9)
        dataset.read_into(CursorRange(start=0, count=1), out)
        path.write_bytes(b"")  # reading the mapping now would kill the process
        for read in (
            lambda: dataset.read_into(CursorRange(start=0, count=1), out),
            lambda: RecordTree(dataset, bytes(32), tmp_path / "trees", "s"),
        ):
            with pytest.raises(UnfitData) as caught:
                read()
            assert caught.value.code == "data-changed"


def test_a_text_folder_may_hold_any_file(tmp_path: Path) -> None:
    np.save(tmp_path / "a.npy", np.zeros(50))
    (tmp_path / "b.bin").write_bytes(header(20240520, 1, 20, 20))
    with open_dataset(tmp_path, BYTES, "bytes") as dataset:
        assert dataset.kind == "text"
        assert dataset.records == ((tmp_path / "a.npy").stat().st_size + 1 + 1064 - 1) // 8


def test_every_format_can_be_asked_for_by_name() -> None:
    from typing import get_args

    from data_holder.datasets import Format

    assert {reader.name for reader in READERS} == set(get_args(Format)) - {"auto"}


@pytest.mark.parametrize("options", [{"separator": 256}, {"separator": -1}, {"delimiter": ";;"}])
def test_impossible_options(options: dict[str, object]) -> None:
    with pytest.raises(ConfigurationError):
        DatasetOptions(**options)  # type: ignore[arg-type]  # wrong on purpose
