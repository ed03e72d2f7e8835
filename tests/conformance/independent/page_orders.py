"""Orders of visits, records and mixtures as docs/formats.md words them, one number at a time. Must not know the product's code."""

from __future__ import annotations

import hashlib
import struct
from collections.abc import Sequence

from blake3 import blake3

from tests.conformance.independent.page_signed import cbor

U64 = 2**64


def visit_order(seed: int, round_number: int, roster: Sequence[str]) -> list[str]:
    """`visit_order: shuffled`."""
    entries = list(roster)
    stream = hashlib.shake_256(cbor(["gput/visit-order", seed, round_number])).digest(8 * len(entries))
    words = struct.unpack(f">{len(entries)}Q", stream)
    for last in reversed(range(1, len(entries))):
        other = words[last] % (last + 1)
        entries[last], entries[other] = entries[other], entries[last]
    return entries


def shuffled(seed: int, n: int, position: int) -> int:
    """Which of n records is at a position, `record_order: shuffled`."""
    e, x = divmod(position, n)
    keys = _keys(seed, e)
    h = next(h for h in range(1, 64) if 4**h >= n)
    x = _pass(x, h, keys)
    while x >= n:
        x = _pass(x, h, keys)
    return x


def _keys(seed: int, e: int) -> tuple[int, ...]:
    key = blake3(b"gput/record-order/1").digest()
    drawn = b"".join(blake3(struct.pack("<QQQ", seed, e, i), key=key).digest() for i in range(2))
    return struct.unpack("<8Q", drawn)


def _mix(z: int, key: int) -> int:
    z = (z + key) % U64
    z = (z ^ z >> 30) * 0xBF58476D1CE4E5B9 % U64
    z = (z ^ z >> 27) * 0x94D049BB133111EB % U64
    return z ^ z >> 31


def _pass(x: int, h: int, keys: Sequence[int]) -> int:
    left, right = x >> h, x % (1 << h)
    for key in keys:
        left, right = right, left ^ _mix(right, key) % (1 << h)
    return (left << h) + right


def cursor(seed: int, order: str, n: int, start: int, count: int) -> list[int]:
    """The records that a cursor names in a dataset of n."""
    positions = range(start, start + count)
    return [p % n if order == "sequential" else shuffled(seed, n, p) for p in positions]


def mixture_seed(seed: int, round_number: int) -> int:
    return _first(["gput/mixture-seed", seed, round_number]) >> 11


def mixture(seed: int, round_number: int, n: int) -> list[int]:
    """In which order a collected tour of n records is trained on."""
    drawn = mixture_seed(seed, round_number)
    return [shuffled(drawn, n, p) for p in range(n)]


def step_seed(seed: int, step: int) -> int:
    return _first(["gput/step-seed", seed, step]) >> 1


def record_seed(seed: int, step: int, place: int) -> int:
    return _first(["gput/record-seed", seed, step, place]) >> 1


def _first(value: Sequence[str | int]) -> int:
    return int.from_bytes(hashlib.sha256(cbor(value)).digest()[:8], "big")
