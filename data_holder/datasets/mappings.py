"""The bytes of a dataset's files: large files mapped, small ones read. Knows no format.

Whoever reads asks `settle` afterwards: only then is it known that every byte was the held file's, as it was when it was held.
"""

from __future__ import annotations

import os
from collections import OrderedDict
from dataclasses import dataclass
from typing import BinaryIO

import numpy as np
from numpy.typing import NDArray

from data_holder.datasets.faults import Mapping, map_file
from data_holder.datasets.files import HeldFile

MAX_MAPPINGS = 64  # each holds a file descriptor; a folder may have more files than a process may open
SMALL_FILE = 1 << 18  # bytes; to map and unmap so little costs more than to read it
SMALL_FILES_BYTES = 24 << 20  # of small files kept in memory; a folder of sources fits, and the holder stays small

Bytes = NDArray[np.uint8]


@dataclass(frozen=True)
class _Mapped:
    mapping: Mapping
    data: Bytes


class Mappings:
    """The bytes of held files, read-only: large files mapped (pages are the kernel's, so any size works), small ones read.

    Kept are the `MAX_MAPPINGS` large and `SMALL_FILES_BYTES` of small files that were used last.
    """

    def __init__(self) -> None:
        self._large: OrderedDict[str, _Mapped] = OrderedDict()
        self._small: OrderedDict[str, Bytes] = OrderedDict()
        self._small_bytes = 0
        self._made: list[tuple[HeldFile, Mapping]] = []
        self._used: dict[str, tuple[HeldFile, Mapping | None]] = {}

    def bytes_of(self, file: HeldFile) -> Bytes:
        """The whole file as uint8 (size,), read-only; to be believed once `settle` was asked.

        Raises:
            UnfitData: the file is not the one that was held, or was changed since.
        """
        if file.size <= SMALL_FILE:
            self._used[file.path] = file, None
            return self._read(file)
        known = self._large.get(file.path)
        if known is None:
            known = self._large[file.path] = _map(file)
            if len(self._large) > MAX_MAPPINGS:
                self._large.popitem(last=False)
        self._large.move_to_end(file.path)
        self._used[file.path] = file, known.mapping
        return known.data

    def made_from(self, file: HeldFile, stream: BinaryIO) -> Bytes:
        """The bytes of an open file that was made from `file`: whoever settles, settles it too."""
        size = os.fstat(stream.fileno()).st_size
        if size == 0:
            return np.empty(0, np.uint8)
        mapping, data = map_file(stream.fileno(), size)
        self._made.append((file, mapping))
        return data

    def settle(self, *others: HeldFile) -> None:
        """Whether everything read since the last time, and `others`, was and is as it was held. Raises: UnfitData."""
        used, self._used = self._used, {}
        for file, _ in used.values():
            file.insist()
        for file in others:
            file.insist()
        for file, mapping in (*used.values(), *self._made):
            if mapping is not None and mapping.cut:
                raise file.changed()

    def close(self) -> None:
        """Forget everything kept; a mapping goes when the last array over it does."""
        self._large.clear()
        self._small.clear()
        self._made.clear()
        self._used.clear()
        self._small_bytes = 0

    def _read(self, file: HeldFile) -> Bytes:
        known = self._small.get(file.path)
        if known is None:
            descriptor = file.open()
            try:
                known = np.frombuffer(os.pread(descriptor, file.size, 0), np.uint8)
            finally:
                os.close(descriptor)
            if len(known) != file.size:
                raise file.changed()
            self._small[file.path] = known
            self._small_bytes += known.size
            while self._small_bytes > SMALL_FILES_BYTES:
                self._small_bytes -= self._small.popitem(last=False)[1].size
        else:
            self._small.move_to_end(file.path)
        return known


def _map(file: HeldFile) -> _Mapped:
    descriptor = file.open()
    try:
        mapping, data = map_file(descriptor, file.size)
    except ValueError:  # it is shorter than it was a moment ago
        raise file.changed() from None
    finally:
        os.close(descriptor)
    return _Mapped(mapping, data)
