"""BLAKE3 over what comes in many pieces, at the speed that it has over one: whole blocks only reach the hash. Knows no piece's meaning.

BLAKE3 hashes chunks side by side, as many as follow one another from a boundary of so many chunks. Behind a piece of odd length every later
one begins off the boundary, and a third of the speed is gone. So what is left of a piece waits here for the next ones, and is the only part
that is copied; it is zeroed in the end, for it may be anybody's.
"""

from __future__ import annotations

from typing import Final

from blake3 import blake3

BLOCK: Final = 64 * 1024
"""64 chunks: four times what the widest vectors take at once."""


class BlockHasher:
    """As `blake3()`, for as many pieces as there are; `digest` ends it."""

    def __init__(self) -> None:
        self._hasher, self._kept, self._filled = blake3(), memoryview(bytearray(BLOCK)), 0

    def update(self, piece: bytes | bytearray | memoryview) -> None:
        """Take the next bytes."""
        view, at = memoryview(piece).cast("B"), 0
        if self._filled:
            at = self._keep(view)
        if not self._filled and at < len(view):
            whole = (len(view) - at) // BLOCK * BLOCK
            if whole:
                self._hasher.update(view[at : at + whole])
            self._keep(view[at + whole :])

    def _keep(self, view: memoryview) -> int:
        """Bytes of `view` that found room in the block that is being filled."""
        length = min(BLOCK - self._filled, len(view))
        self._kept[self._filled : self._filled + length] = view[:length]
        self._filled += length
        if self._filled == BLOCK:
            self._hasher.update(self._kept)
            self._filled = 0
        return length

    def digest(self) -> bytes:
        """BLAKE3 (32 bytes) of all pieces, end to end."""
        self._hasher.update(self._kept[: self._filled])
        self._filled = 0
        self._kept[:] = bytes(BLOCK)
        digest = self._hasher.digest()
        self._hasher.reset()  # it buffers up to a block of its own, which lies in the heap otherwise
        return digest
