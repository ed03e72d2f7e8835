"""Known answers of a collected tour's order: whoever has a manifest must find the same one, in any release."""

from __future__ import annotations

import hashlib

import cbor2
import numpy as np
import pytest
from blake3 import blake3

from shared.protocol.mixture import mixture_order, mixture_seed

SEEDS = {(7, 1): 1524152397980311, (7, 2): 3340846490870517, (0, 1_000_000): 2975539850195069}
ORDER = [1, 0, 11, 6, 3, 14, 19, 16, 13, 5, 7, 2, 8, 12, 18, 9, 17, 15, 4, 10]
"""Of twenty records under the first of these seeds."""
U64 = 2**64 - 1


@pytest.mark.parametrize(("of", "seed"), SEEDS.items())
def test_a_rounds_seed(of: tuple[int, int], seed: int) -> None:
    digest = hashlib.sha256(cbor2.dumps(["gput/mixture-seed", *of], canonical=True)).digest()
    assert mixture_seed(*of) == seed == int.from_bytes(digest[:8], "big") >> 11


def test_the_order_of_twenty_records() -> None:
    assert mixture_order(SEEDS[7, 1], 20).records(np.arange(20)).tolist() == ORDER
    assert [_record(slot, 20, SEEDS[7, 1]) for slot in range(20)] == ORDER


def _record(slot: int, n: int, seed: int) -> int:
    """The construction as `shared.protocol.record_order` words it, in integers, for the first epoch."""
    half = max(1, -(-(n - 1).bit_length() // 2))
    key = blake3(b"gput/record-order/1").digest()
    stream = b"".join(
        blake3(b"".join(number.to_bytes(8, "little") for number in (seed, 0, i)), key=key).digest() for i in (0, 1)
    )
    while True:
        left, right = slot >> half, slot & ((1 << half) - 1)
        for at in range(0, 64, 8):
            z = (right + int.from_bytes(stream[at : at + 8], "little")) & U64
            z = ((z ^ (z >> 30)) * 0xBF58476D1CE4E5B9) & U64
            z = ((z ^ (z >> 27)) * 0x94D049BB133111EB) & U64
            left, right = right, left ^ ((z ^ (z >> 31)) & ((1 << half) - 1))
        slot = (left << half) | right
        if slot < n:
            return slot
