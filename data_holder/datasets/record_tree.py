"""The commitment tree of one dataset in a kept file: built in one pass, read for proofs. Knows no session and no network.

File: magic (8) ‖ records ‖ bytes of a record ‖ lowest kept level (u64 each, little-endian), then the kept levels from that one up to the
root, 32 bytes a node. Levels below are made again from the records when a proof needs them: a tree over short records would
otherwise weigh as much as the data.
"""

from __future__ import annotations

import os
import struct
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import BinaryIO

import numpy as np
from numpy.typing import NDArray

from data_holder.datasets.cache import discard, forget, kept, place
from data_holder.datasets.dataset import Dataset
from data_holder.datasets.options import GoOn, unhindered
from shared.canonical import keyed_blake3
from shared.claims.visit import CursorRange
from shared.protocol.membership import RULE, dataset_root, leaf_hashes, parents, siblings
from shared.protocol.merkle import HASH_BYTES
from shared.protocol.record_order import records_of

MAGIC, KIND = b"gputtre%d" % RULE, "tree"  # those of the first rule end in another letter
_HEADER = struct.Struct("<8sQQQ")
FREE_BYTES = 256 << 20
"""Up to this size a tree is kept whole."""
SHARE = 16
"""A larger one may weigh one part in this many of the dataset."""
TOGETHER = 1 << 18
"""Nodes looked at without asking whether to go on: a part of a second."""


def _sizes(records: int) -> Iterator[int]:
    """Number of nodes of each level, leaves first."""
    yield records
    while records > 1:
        records = (records + 1) >> 1
        yield records


def lowest_kept(records: int, record_bytes: int) -> int:
    """The first level whose nodes, with all above, keep within the room a tree may take."""
    room, top = max(FREE_BYTES, records * record_bytes // SHARE), len(list(_sizes(records))) - 1
    return next((level for level in range(top) if 2 * HASH_BYTES * (records >> level) <= room), top)


def _layout(records: int, lowest: int) -> tuple[list[int], int]:
    """Offset of each level's first node in the file (levels below `lowest` have none), and the file's length."""
    offsets, end = [], _HEADER.size
    for level, size in enumerate(_sizes(records)):
        offsets.append(end)
        end += size * HASH_BYTES if level >= lowest else 0
    return offsets, end


class _Builder:
    """Takes leaves in order and writes every kept node at its place; holds one node a level."""

    def __init__(self, out: BinaryIO, records: int, lowest: int) -> None:
        self._file, self._lowest = out.fileno(), lowest
        self._at, _ = _layout(records, lowest)
        self._odd: list[bytes | None] = [None] * len(self._at)

    def add(self, nodes: list[bytes], level: int = 0) -> None:
        """Append nodes to a level, and the parents of whole pairs to the one above."""
        if level >= self._lowest:
            self._at[level] += os.pwrite(self._file, b"".join(nodes), self._at[level])
        if level == len(self._at) - 1:
            return
        odd = self._odd[level]
        nodes = nodes if odd is None else [odd, *nodes]
        self._odd[level] = nodes.pop() if len(nodes) % 2 else None
        if nodes:
            self.add(parents(nodes), level + 1)

    def finish(self) -> None:
        """Pass the odd last nodes up."""
        for level, odd in enumerate(self._odd):
            if odd is not None:
                self._odd[level] = None
                self.add([odd], level + 1)


class RecordTree:
    """The tree over `dataset` under `salt` (32 bytes), from its kept file in `folder` or built into it.

    Blocking; while it is built, `hashed(n)` is told after each block how many records are done. `root` is what the holder approves
    (32 bytes). The file is trusted as the dataset's own files are: it lies beside them, and whatever it says wrong the GPU refuses.

    Raises:
        UnfitData: a file of the dataset changed meanwhile. ConfigurationError: the folder cannot keep the tree.
        Whatever `go_on` raises before or while it is built; nothing is kept.
    """

    def __init__(
        self, dataset: Dataset, salt: bytes, folder: Path, stem: str, *, go_on: GoOn = unhindered,
        hashed: Callable[[int], None] = lambda done: None,
    ) -> None:  # fmt: skip
        self._dataset, self._salt, self._go_on, self._hashed = dataset, salt, go_on, hashed
        self.records, self.record_bytes = dataset.records, dataset.record_bytes
        self._lowest = lowest_kept(self.records, self.record_bytes)
        self._header = _HEADER.pack(MAGIC, self.records, self.record_bytes, self._lowest)
        self._offsets, length = _layout(self.records, self._lowest)
        self._nodes = kept(folder, stem, _state(dataset, salt), KIND, self._write, go_on=go_on)
        if len(self._nodes) != length or self._nodes[: _HEADER.size].tobytes() != self._header:
            # No tree of ours: a disk that lost its end, or another program's file.
            discard(folder, stem, _state(dataset, salt), KIND)
            self._nodes = kept(folder, stem, _state(dataset, salt), KIND, self._write, go_on=go_on)
        self.root = dataset_root(self._kept_node(len(self._offsets) - 1, 0), self.records, self.record_bytes)

    def proof(self, cursor: CursorRange) -> bytes:
        """The multi-proof for the records that `cursor` names. Raises: UnfitData, as reading does."""
        return self.shown(cursor)[0]

    def shown(self, cursor: CursorRange) -> tuple[bytes, bytes]:
        """The multi-proof for the records that `cursor` names, and their leaves in its order, end to end.

        Raises:
            UnfitData: as reading does.
        """
        named, lowest = records_of(cursor, self.records), self._lowest
        distinct = np.unique(named)
        wanted = list(siblings(distinct.tolist(), self.records))
        made = self._made_again(set(np.unique(distinct >> lowest).tolist()) if lowest else set())

        def node(level: int, at: int) -> bytes:
            if level >= lowest:
                return self._kept_node(level, at)
            return made[at >> (lowest - level)][level][at & ((1 << (lowest - level)) - 1)]

        if lowest:
            leaves = b"".join(node(0, index) for index in named.tolist())
        else:
            kept = self._nodes[self._offsets[0] : self._offsets[0] + self.records * HASH_BYTES]
            leaves = kept.reshape(-1, HASH_BYTES)[named].tobytes()
        return b"".join(node(level, at) for level, at in wanted), leaves

    def agrees(self, go_on: GoOn = unhindered) -> bool:
        """Whether every kept node is made of those kept below it, as it was built: on a disk that fails, one is not.

        Raises:
            Whatever `go_on` raises, which is asked only where it takes long.
        """
        sizes = list(_sizes(self.records))
        for level in range(self._lowest, len(sizes) - 1):
            for first in range(0, sizes[level], TOGETHER):
                if first:
                    go_on()
                below = [self._kept_node(level, at) for at in range(first, min(first + TOGETHER, sizes[level]))]
                at, made = self._offsets[level + 1] + (first >> 1) * HASH_BYTES, b"".join(parents(below))
                if self._nodes[at : at + len(made)].tobytes() != made:
                    return False
        return True

    def close(self) -> None:
        """Give the mapping back."""
        self._nodes = np.empty(0, np.uint8)

    def _kept_node(self, level: int, position: int) -> bytes:
        at = self._offsets[level] + position * HASH_BYTES
        return self._nodes[at : at + HASH_BYTES].tobytes()

    def _made_again(self, groups: set[int]) -> dict[int, list[list[bytes]]]:
        """The levels below the lowest kept one, leaves first, under each of these nodes of it; their records are read together."""
        made, ordered, step = {}, sorted(groups), max(1, self._dataset.block_records >> self._lowest)
        for first in range(0, len(ordered), step):
            part = ordered[first : first + step]
            ranges = [range(g << self._lowest, min((g + 1) << self._lowest, self.records)) for g in part]
            leaves, at = self._leaves(np.concatenate([np.array(r, np.int64) for r in ranges])), 0
            for group, records in zip(part, ranges, strict=True):
                levels, at = [leaves[at : at + len(records)]], at + len(records)
                while len(levels) < self._lowest:
                    levels.append(parents(levels[-1]))
                made[group] = levels
        return made

    def _leaves(self, indexes: NDArray[np.int64]) -> list[bytes]:
        return leaf_hashes(self._salt, indexes.tolist(), memoryview(self._dataset.read_records(indexes)))

    def _write(self, out: BinaryIO) -> None:
        out.write(self._header)
        out.flush()
        builder, step = _Builder(out, self.records, self._lowest), self._dataset.block_records
        for first in range(0, self.records, step):
            self._go_on()
            builder.add(self._leaves(np.arange(first, min(first + step, self.records), dtype=np.int64)))
            self._hashed(min(first + step, self.records))
        builder.finish()


def tree_is_kept(dataset: Dataset, salt: bytes, folder: Path, stem: str) -> bool:
    """Whether the tree of the dataset as it lies there now was built before, under this salt."""
    return place(folder, stem, _state(dataset, salt), KIND).exists()


def _state(dataset: Dataset, salt: bytes) -> bytes:
    return keyed_blake3(salt, bytes((RULE,)) + dataset.identity)


def forget_tree(folder: Path, stem: str) -> None:
    """Remove what is kept for a stem. Raises: OSError: not all of it."""
    forget(folder, stem, KIND)
