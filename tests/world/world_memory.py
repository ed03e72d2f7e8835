"""GPU memory as it lies in its memory file: images of every page that holds something. Knows where regions lie; no law."""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator
from dataclasses import dataclass

from gpu_agent.hardware.hbm import HBM, PAGE
from shared.names import RegionKind

_NOTHING = bytes(PAGE)
MODEL = (RegionKind.MODEL, RegionKind.OPTIMISER)
KEPT = (*MODEL, RegionKind.COMMITTED)
"""What law L7 lets differ from the post-setup image: model, its committed copy, optimiser state."""


@dataclass(frozen=True)
class Place:
    """One region: handle, kind, address, length in bytes."""

    handle: int
    kind: RegionKind
    address: int
    length: int

    def pages(self) -> range:
        return range(self.address, self.address + self.length, PAGE)


Image = dict[int, bytes]
"""Address of each page that is not all zeros -> its bytes."""


def image(hbm: HBM, pool: dict[bytes, bytes]) -> Image:
    """The whole address space, also what no allocation covers: the kernel says which pages exist. `pool` holds equal pages once."""
    pages: Image = {}
    for start, end in _extents(hbm.fd):
        data = os.pread(hbm.fd, end - start, start)
        for at in range(0, len(data), PAGE):
            page = data[at : at + PAGE]
            if page != _NOTHING:
                pages[start + at] = pool.setdefault(page, page)
    return pages


def _extents(fd: int) -> Iterator[tuple[int, int]]:
    at = 0
    while True:
        try:
            start = os.lseek(fd, at, os.SEEK_DATA)
        except OSError as error:
            if error.errno != errno.ENXIO:
                raise
            return
        at = os.lseek(fd, start, os.SEEK_HOLE)
        yield start, at


def content(pages: Image, places: list[Place]) -> bytes:
    """The bytes of regions, one after another."""
    return b"".join(pages.get(page, _NOTHING) for place in places for page in place.pages())


def changed(before: Image, after: Image) -> set[int]:
    """Pages that differ."""
    return {page for page in before.keys() | after.keys() if before.get(page) != after.get(page)}
