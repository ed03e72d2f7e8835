"""Which records a cursor names, and in which order: a keyed permutation per epoch in O(1) memory. Knows no dataset, only n and positions.

Holder and GPU both compute it: the holder to read, the GPU to know which records it must have been given.

Construction (fixed for ever: a repeated visit must carry the same records after any upgrade):

    position p  = epoch e · n + slot s                              e = p // n, s = p % n
    keys(e)     = k_1 ‖ … ‖ k_8, 64 bits each, little-endian: the first 64 bytes of
                  BLAKE3(key = BLAKE3("gput/record-order/1"), seed:u64le ‖ e:u64le ‖ i:u64le) for i = 0, 1
    permutation = balanced Feistel network of 8 rounds over 2h bits, the smallest 2h with 2^(2h) ≥ max(n, 4);
                  (L, R) ← (R, L xor (mix(R + k_r) mod 2^h)), slot = L · 2^h + R
    mix         = the finaliser of SplitMix64 (Steele, Lea, Flood, OOPSLA 2014)
    record      = permutation applied to s, and again until it is < n (cycle walking: Black, Rogaway, CT-RSA 2002, 3)

A Feistel network is a bijection whatever its round function is, and cycle walking keeps it one on [0, n). The domain is
less than four times n, so a slot walks fewer than four steps on average. The order mixes records; it hides nothing.
"""

from __future__ import annotations

from functools import lru_cache
from struct import Struct
from typing import Any

import numpy as np
from numpy.typing import NDArray

from shared.canonical import blake3_256, keyed_blake3
from shared.claims.visit import CursorRange

ROUNDS = 8
_KEY = blake3_256(b"gput/record-order/1")
_KEYS = Struct(f"<{ROUNDS}Q")
_M1, _M2, _MASK = 0xBF58476D1CE4E5B9, 0x94D049BB133111EB, 2**64 - 1
_A1, _A2, _S30, _S27, _S31 = (np.uint64(number) for number in (_M1, _M2, 30, 27, 31))
_FEW = 16  # positions up to which plain integers are faster than NumPy's cost per call: a short visit waits for this


@lru_cache(maxsize=4096)
def _epoch_keys(seed: int, epoch: int) -> tuple[int, ...]:
    head = seed.to_bytes(8, "little") + epoch.to_bytes(8, "little")
    return _KEYS.unpack(b"".join(keyed_blake3(_KEY, head + i.to_bytes(8, "little")) for i in range(2)))


def _scalar_mix(z: int) -> int:
    z = ((z ^ (z >> 30)) * _M1) & _MASK
    z = ((z ^ (z >> 27)) * _M2) & _MASK
    return z ^ (z >> 31)


class Shuffle:
    """The shuffled order of a dataset of `n` records under `seed`; holds nothing but the two numbers."""

    def __init__(self, seed: int, n: int) -> None:
        if n < 1 or not 0 <= seed < 2**64:
            raise ValueError("a shuffle needs n >= 1 and a seed of 64 bits")
        self.seed, self.n = seed, n
        self._half = max(1, ((n - 1).bit_length() + 1) // 2)

    def records(self, positions: NDArray[np.int64]) -> NDArray[np.int64]:
        """Record indexes (m,) in [0, n) of positions (m,) >= 0 of the endless stream; vectorised."""
        # Of one record each position is an epoch of its own, whose keys would decide nothing.
        if self.n == 1 or positions.size == 0:
            return np.zeros(positions.size, np.int64)
        epochs = positions // self.n
        first, last = int(epochs.min()), int(epochs.max())
        if last - first < positions.size:  # positions of one range: neighbouring epochs
            known = range(first, last + 1)
            which = epochs - first
        else:
            unique, which = np.unique(epochs, return_inverse=True)
            known = unique.tolist()
        keys = np.array([_epoch_keys(self.seed, epoch) for epoch in known], np.uint64)  # (epochs, ROUNDS)
        slots = (positions % self.n).astype(np.uint64)
        return self._walk(slots, keys, which).astype(np.int64)

    def _walk(self, slots: NDArray[np.uint64], keys: NDArray[np.uint64], which: NDArray[Any]) -> NDArray[np.uint64]:
        out, outside, drawn = slots.copy(), np.arange(slots.size), np.ascontiguousarray(keys.T)
        while outside.size > _FEW:
            out[outside] = self._permute(out[outside], drawn[:, which[outside]])
            outside = outside[out[outside] >= self.n]
        for at in outside.tolist():
            out[at] = self._walk_one(int(out[at]), keys[which[at]].tolist())
        return out

    def _permute(self, x: NDArray[np.uint64], keys: NDArray[np.uint64]) -> NDArray[np.uint64]:
        half, mask = np.uint64(self._half), np.uint64((1 << self._half) - 1)
        left, right = x >> half, x & mask
        for key in keys:  # (ROUNDS, m)
            z = right + key  # uint64 arithmetic wraps, as meant
            z ^= z >> _S30
            z *= _A1
            z ^= z >> _S27
            z *= _A2
            z ^= z >> _S31
            z &= mask
            z ^= left
            left, right = right, z
        return (left << half) | right

    def _walk_one(self, x: int, keys: list[int]) -> int:
        half, mask = self._half, (1 << self._half) - 1
        while True:
            left, right = x >> half, x & mask
            for key in keys:
                left, right = right, left ^ (_scalar_mix((right + key) & _MASK) & mask)
            x = (left << half) | right
            if x < self.n:
                return x


def order(seed: int, n: int) -> Shuffle:
    """The keyed order of `n` records; `order(seed, n).records(p)` is order(p // n, p % n) of `CursorRange`."""
    return Shuffle(seed, n)


def records_of(cursor: CursorRange, n: int, first: int = 0, count: int | None = None) -> NDArray[np.int64]:
    """Record indexes of `count` positions of `cursor` from its `first` on (all of them by default), in a dataset of `n` records."""
    return records_at(cursor, n, np.arange(first, cursor.count if count is None else first + count, dtype=np.int64))


def records_at(cursor: CursorRange, n: int, places: NDArray[np.int64]) -> NDArray[np.int64]:
    """As `records_of`, of these `places` (m,) of `cursor`, counted from 0 at its start."""
    positions = cursor.start + places
    return positions % n if cursor.order == "sequential" else order(cursor.seed, n).records(positions)
