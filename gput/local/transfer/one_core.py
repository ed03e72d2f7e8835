"""What one core does with a visit's bytes: the cipher alone, and each stage of the data path by itself, in its own code.

Blocking, one thread. Knows the product's parts that do the work; no process and no link.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeVar

from data_holder.commitments import Committed
from gput.bench.transfer_tables import Stage
from shared.claims.visit import MAX_CHUNK_BYTES, CursorRange
from shared.crypto.aead import KEY_BYTES, TAG_BYTES, OpeningChannel, SealingChannel
from shared.protocol.membership import commitment, leaf_hashes, root_of
from shared.protocol.record_order import records_of

T = TypeVar("T")
CIPHER_CHUNK, CHUNKS, PASSES = 1024 * 1024, 32, 5
HOLDER, GPU = "holder", "GPU"


@dataclass(frozen=True)
class Cipher:
    """Bytes a second of one core."""

    seal: float
    open: float


def cipher(passes: int = PASSES) -> Cipher:
    """AES-256-GCM over chunks of 1 MiB from and into buffers that are there, the fastest of several passes: a limit is not to flatter."""
    key, plain, out = os.urandom(KEY_BYTES), bytearray(os.urandom(CIPHER_CHUNK)), bytearray(CIPHER_CHUNK + TAG_BYTES)
    first = SealingChannel(key, label="bench").seal(plain, b"")
    sealing = SealingChannel(os.urandom(KEY_BYTES), label="bench")

    def rate(act: Callable[[OpeningChannel], object]) -> float:
        took = []
        for _ in range(passes):
            # Each of these has its first record before it, so the same one, which lies in the caches, is opened again and again.
            channels = [OpeningChannel(key, label="bench") for _ in range(CHUNKS)]
            began = time.perf_counter()
            for channel in channels:
                act(channel)
            took.append(time.perf_counter() - began)
        return CHUNKS * CIPHER_CHUNK / min(took)

    return Cipher(
        rate(lambda _: sealing.seal_into(plain, b"", out)), rate(lambda channel: channel.open_into(first, b"", plain))
    )


class Stages:
    """Every stage over the records that `cursor` names, one after another, each timed by the processor's clock."""

    def __init__(self, committed: Committed, cursor: CursorRange) -> None:
        self._dataset, self._tree, self._salt = committed.dataset, committed.tree, committed.salt.reveal()
        self._cursor, self._length = cursor, cursor.count * committed.dataset.record_bytes
        self._memory = memoryview(bytearray(self._length))
        self._found: list[Stage] = []

    def measure(self) -> list[Stage]:
        """All of them, in the order in which a visit has them."""
        indexes = records_of(self._cursor, self._dataset.records).tolist()
        proof, _ = self._timed("proof and leaves", HOLDER, lambda: self._tree.shown(self._cursor))
        self._timed("reading", HOLDER, self._read)
        key = os.urandom(KEY_BYTES)
        sealing, opening = SealingChannel(key, label="bench"), OpeningChannel(key, label="bench")
        sealed = [memoryview(bytearray(len(chunk) + TAG_BYTES)) for chunk in self._chunks()]
        self._timed("sealing", HOLDER, lambda: [
            sealing.seal_into(chunk, b"", out) for chunk, out in zip(self._chunks(), sealed, strict=True)
        ])  # fmt: skip
        self._timed("opening", GPU, lambda: [
            opening.open_into(record, b"", chunk) for record, chunk in zip(sealed, self._chunks(), strict=True)
        ])  # fmt: skip
        leaves = self._timed("leaf hashing", GPU, lambda: leaf_hashes(self._salt, indexes, self._memory))
        known = sorted(dict(zip(indexes, leaves, strict=True)).items())
        self._timed("membership", GPU, lambda: root_of(known, self._dataset.records, proof))
        self._timed("commitment", "both", lambda: commitment(self._salt, b"".join(leaves)))
        return self._found

    def _chunks(self) -> list[memoryview]:
        return [self._memory[at : at + MAX_CHUNK_BYTES] for at in range(0, self._length, MAX_CHUNK_BYTES)]

    def _read(self) -> None:
        for number, chunk in enumerate(self._chunks()):
            self._dataset.read_slice(self._cursor, number * MAX_CHUNK_BYTES, chunk)

    def _timed(self, name: str, where: str, act: Callable[[], T]) -> T:
        began = time.thread_time()
        result = act()
        self._found.append(Stage(name, where, time.thread_time() - began))
        return result
