"""What two cores' cipher moves from memory to memory: sealed out of a large buffer into a few places, opened out of them into another.

The cipher alone, at work in its cache, is faster than memory gives; this is what a transfer could reach if it did nothing else. By two
threads: the cipher lets others run. Knows no dataset, no process and no link.
"""

from __future__ import annotations

import os
import queue
import time
from concurrent.futures import ThreadPoolExecutor
from typing import Final, Self

from shared.claims.visit import MAX_CHUNK_BYTES
from shared.crypto.aead import KEY_BYTES, TAG_BYTES, OpeningChannel, SealingChannel

PLACES: Final = 4
BYTES: Final = 64 * 1024 * 1024
"""No cache holds so much twice."""
Places = queue.SimpleQueue[memoryview]


class ThroughMemory:
    """Buffers that were touched before: new pages would be measured too. Its threads end with the block."""

    def __init__(self) -> None:
        self._source, self._target = (memoryview(bytearray(BYTES)) for _ in range(2))
        self._source[:] = os.urandom(MAX_CHUNK_BYTES) * (BYTES // MAX_CHUNK_BYTES)
        self._target[:] = self._source
        self._places = [memoryview(bytearray(MAX_CHUNK_BYTES + TAG_BYTES)) for _ in range(PLACES)]
        self._threads = ThreadPoolExecutor(2, "cipher")

    def rate(self) -> float:
        """Bytes a second of one pass."""
        return BYTES / _pass(self._threads, self._source, self._target, self._places)

    def __enter__(self) -> Self:
        self.rate()
        return self

    def __exit__(self, *_: object) -> None:
        self._threads.shutdown()


def _pass(threads: ThreadPoolExecutor, source: memoryview, target: memoryview, places: list[memoryview]) -> float:
    """Seconds until all is in `target`."""
    key, free, sealed = os.urandom(KEY_BYTES), Places(), Places()
    for place in places:
        free.put(place)
    began = time.perf_counter()
    both = threads.submit(_seal, key, source, free, sealed), threads.submit(_open, key, target, free, sealed)
    for one in both:
        one.result()
    return time.perf_counter() - began


def _seal(key: bytes, source: memoryview, free: Places, sealed: Places) -> None:
    channel = SealingChannel(key, label="bench")
    for at in range(0, len(source), MAX_CHUNK_BYTES):
        place = free.get()
        channel.seal_into(source[at : at + MAX_CHUNK_BYTES], b"", place)
        sealed.put(place)


def _open(key: bytes, target: memoryview, free: Places, sealed: Places) -> None:
    channel = OpeningChannel(key, label="bench")
    for at in range(0, len(target), MAX_CHUNK_BYTES):
        place = sealed.get()
        channel.open_into(place, b"", target[at : at + MAX_CHUNK_BYTES])
        free.put(place)
