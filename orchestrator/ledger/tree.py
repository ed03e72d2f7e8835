"""A Merkle tree that grows one leaf at a time (RFC 9162 section 2.1), with proofs in O(log n). Knows no storage, no signature.

Entry i of `levels[k]` is the hash of the complete subtree over leaves [i·2^k, (i+1)·2^k), so an append costs O(1) amortised and nothing is
computed over all leaves again; the proofs are those that `shared.protocol.merkle` verifies. A leaf costs 64 bytes of memory, which
are never moved: a row that were one buffer would be copied as it grows, and leave holes of its former sizes in the process's memory.
"""

from __future__ import annotations

from shared.canonical import sha256
from shared.protocol.merkle import EMPTY_ROOT

HASH_BYTES = 32
PAGE = 128 * HASH_BYTES


def _node(left: bytes, right: bytes) -> bytes:
    return sha256(b"\x01" + left + right)


class _Row:
    """The hashes of one level, in pages of 128."""

    def __init__(self) -> None:
        self._pages: list[bytearray] = []
        self.size = 0

    def add(self, value: bytes) -> None:
        """One hash at the end."""
        if self.size * HASH_BYTES == len(self._pages) * PAGE:
            self._pages.append(bytearray(PAGE))
        self.size += 1
        page, start = divmod((self.size - 1) * HASH_BYTES, PAGE)
        self._pages[page][start : start + HASH_BYTES] = value

    def entry(self, index: int) -> bytes:
        """The hash at `index` < `size`."""
        page, start = divmod(index * HASH_BYTES, PAGE)
        return bytes(self._pages[page][start : start + HASH_BYTES])


class MerkleTree:
    """Leaf hashes in (32 bytes each), roots and proofs out."""

    def __init__(self) -> None:
        self._levels = [_Row()]

    @property
    def size(self) -> int:
        """Number of leaves."""
        return self._levels[0].size

    def leaf(self, index: int) -> bytes:
        """The hash of leaf `index`."""
        return self._levels[0].entry(range(self.size)[index])

    def holds(self, leaf_hash: bytes) -> bool:
        """Whether any leaf has this hash; looks at all of them."""
        return any(self.leaf(index) == leaf_hash for index in range(self.size))

    def append(self, leaf_hash: bytes) -> None:
        """Add one leaf hash at the end."""
        level, value = 0, leaf_hash
        while True:
            if level == len(self._levels):
                self._levels.append(_Row())
            row = self._levels[level]
            row.add(value)
            if row.size % 2:
                return
            value = _node(row.entry(row.size - 2), row.entry(row.size - 1))
            level += 1

    def root(self, size: int | None = None) -> bytes:
        """Root over the first `size` leaves (all by default)."""
        size = self.size if size is None else size
        return EMPTY_ROOT if size == 0 else self._span(0, size)

    def inclusion(self, index: int, size: int) -> list[bytes]:
        """Audit path of leaf `index` in the tree of `size` leaves (RFC 9162 2.1.3.1)."""
        path, start, stop = [], 0, size
        while stop - start > 1:
            middle = start + _split(stop - start)
            if index < middle:
                path.append(self._span(middle, stop))
                stop = middle
            else:
                path.append(self._span(start, middle))
                start = middle
        return path[::-1]

    def consistency(self, old: int, size: int) -> list[bytes]:
        """Proof that the tree of `size` leaves extends the one of `old` (RFC 9162 2.1.4.1); empty for old = 0 or old = size."""
        if old in (0, size):
            return []
        path, start, stop, whole = [], 0, size, True
        while old != stop:
            middle = start + _split(stop - start)
            if old <= middle:
                path.append(self._span(middle, stop))
                stop = middle
            else:
                path.append(self._span(start, middle))
                start, whole = middle, False
        if not whole:
            path.append(self._span(start, stop))
        return path[::-1]

    def _span(self, start: int, stop: int) -> bytes:
        width = stop - start
        level = width.bit_length() - 1
        if width == 1 << level and start % width == 0:
            return self._levels[level].entry(start >> level)
        middle = start + _split(width)
        return _node(self._span(start, middle), self._span(middle, stop))


def _split(width: int) -> int:
    # The largest power of two smaller than `width`.
    return 1 << ((width - 1).bit_length() - 1)
