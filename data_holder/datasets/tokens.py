"""Token shards: llm.c's (header of 256 int32, then uint16) and nanoGPT's (uint16 only). Knows no vocabulary.

One file or a folder of `.bin` shards, sorted by relative path. Each shard is a stream of its own, as in llm.c's loader.
Header (llm.c `dev/data/data_common.py`): int32[256] little-endian, [0] magic 20240520, [1] version 1, [2] number of tokens.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np

from data_holder.datasets.dataset import Dataset
from data_holder.datasets.files import HeldFile, head, hold, list_files, shown
from data_holder.datasets.findings import refusal
from data_holder.datasets.options import DatasetOptions
from data_holder.datasets.streams import Piece, StreamDataset
from shared.claims.records import RecordSchema

HEADER_INTS = 256
HEADER_BYTES = HEADER_INTS * 4
MAGIC = 20240520
VERSION = 1
TOKEN = np.dtype("<u2")


def is_llmc(path: Path) -> bool:
    """True when the file, or the folder's first `.bin` file, begins with llm.c's magic number."""
    first = _first_shard(path)
    return first is not None and head(first, 4) == MAGIC.to_bytes(4, "little")


def is_raw(path: Path) -> bool:
    """True when the file, or a file of the folder, is called `.bin` and is no llm.c shard."""
    first = _first_shard(path)
    return first is not None and first.name.endswith(".bin") and not is_llmc(path)


def _first_shard(path: Path) -> HeldFile | None:
    if path.is_dir():
        shards = [shard for shard in sorted(path.glob("*.bin")) if not shard.is_symlink()]
        return hold(shards[0], follow=False) if shards else None
    return hold(path)


def _shards(path: Path, options: DatasetOptions) -> list[HeldFile]:
    return list_files(path, options.suffixes or (".bin",)) if path.is_dir() else [hold(path)]


def open_llmc(path: Path, records: RecordSchema, options: DatasetOptions) -> Dataset:
    """Samples from llm.c shards.

    Raises:
        UnfitData: a header that is not llm.c's, a length that contradicts it, too few tokens, wrong records.
    """
    streams = [[_llmc_piece(file)] for file in _shards(path, options)]
    return StreamDataset("llmc", records, TOKEN, streams, shown(path.name))


def _llmc_piece(file: HeldFile) -> Piece:
    header = np.frombuffer(head(file, HEADER_BYTES), np.uint8)
    remedy = "make the shard again with llm.c's data scripts"
    if file.size == 0:
        raise refusal("data-empty", "holds not one byte", file.name, remedy=remedy)
    if len(header) < HEADER_BYTES:
        raise refusal(
            "data-malformed", f"is shorter than a shard header of {HEADER_BYTES} bytes", file.name, remedy=remedy
        )
    magic, version, count = (int(number) for number in header.view("<i4")[:3])
    if magic != MAGIC:
        raise refusal("data-malformed", f"does not begin with llm.c's magic number {MAGIC}", file.name,
                      remedy="for shards without a header use the format nanogpt")  # fmt: skip
    if version != VERSION:
        raise refusal("data-malformed", f"is a shard of version {version}; only version {VERSION} is known", file.name)
    if count < 0 or HEADER_BYTES + count * TOKEN.itemsize != file.size:
        held = (file.size - HEADER_BYTES) // TOKEN.itemsize
        reason = f"its header says {count} tokens and the file has room for {held}"
        raise refusal("data-malformed", reason, file.name, remedy="the file was cut or never finished; copy it again")
    return Piece(file.name, count, TOKEN, file, HEADER_BYTES)


def open_nanogpt(path: Path, records: RecordSchema, options: DatasetOptions) -> Dataset:
    """Samples from raw uint16 files.

    Raises:
        UnfitData: empty, half a token at the end, too few tokens, wrong records.
    """
    streams = [[_raw_piece(file)] for file in _shards(path, options)]
    return StreamDataset("nanogpt", records, TOKEN, streams, shown(path.name))


def _raw_piece(file: HeldFile) -> Piece:
    if file.size == 0:
        raise refusal("data-empty", "holds not one byte", file.name)
    if file.size % TOKEN.itemsize:
        raise refusal("data-malformed", "ends in half a token of 2 bytes", file.name, remedy="copy the file again")
    return Piece(file.name, file.size // TOKEN.itemsize, TOKEN, file)
