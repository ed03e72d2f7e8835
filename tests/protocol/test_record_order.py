"""The keyed order of records: a bijection per epoch, the same for ever. Its reference is written again here, one number at a time."""

from __future__ import annotations

import numpy as np
import pytest
from blake3 import blake3
from hypothesis import given, settings
from hypothesis import strategies as st

from shared.protocol.record_order import order

M64 = 2**64 - 1


def reference(seed: int, n: int, position: int) -> int:
    """order(p // n, p % n) as the module's construction says, in plain integers."""
    epoch, slot = divmod(position, n)
    key = blake3(b"gput/record-order/1").digest()
    head = seed.to_bytes(8, "little") + epoch.to_bytes(8, "little")
    stream = b"".join(blake3(head + i.to_bytes(8, "little"), key=key).digest() for i in range(2))
    keys = [int.from_bytes(stream[8 * r : 8 * r + 8], "little") for r in range(8)]
    half = 1
    while 4**half < n:
        half += 1
    while True:
        left, right = slot >> half, slot & (2**half - 1)
        for k in keys:
            z = (right + k) & M64
            z = ((z ^ (z >> 30)) * 0xBF58476D1CE4E5B9) & M64
            z = ((z ^ (z >> 27)) * 0x94D049BB133111EB) & M64
            left, right = right, left ^ ((z ^ (z >> 31)) & (2**half - 1))
        slot = int((left << half) | right)
        if slot < n:
            return slot


@given(n=st.integers(1, 3000), seed=st.integers(0, 2**53 - 1), epoch=st.integers(0, 2**20))
@settings(max_examples=60, deadline=None)
def test_every_epoch_is_a_permutation(n: int, seed: int, epoch: int) -> None:
    positions = np.arange(epoch * n, (epoch + 1) * n, dtype=np.int64)
    assert sorted(order(seed, n).records(positions).tolist()) == list(range(n))


@given(n=st.integers(1, 2**45), seed=st.integers(0, 2**53 - 1), position=st.integers(0, 2**53 - 1))
@settings(max_examples=80, deadline=None)
def test_equals_the_reference(n: int, seed: int, position: int) -> None:
    got = order(seed, n).records(np.array([position, position], np.int64)).tolist()
    assert got == [reference(seed, n, position)] * 2


@given(n=st.integers(1, 3000), seed=st.integers(0, 2**53 - 1), start=st.integers(0, 2**30), m=st.integers(1, 120))
@settings(max_examples=40, deadline=None)
def test_few_and_many_positions_give_the_same(n: int, seed: int, start: int, m: int) -> None:
    """Short draws are made in plain integers, long ones in arrays."""
    positions = np.arange(start, start + m, dtype=np.int64)
    assert order(seed, n).records(positions).tolist() == [reference(seed, n, p) for p in positions.tolist()]


@given(n=st.integers(1, 40), start=st.integers(0, 500), count=st.integers(1, 200))
@settings(max_examples=40, deadline=None)
def test_a_range_over_many_epochs_equals_its_positions_one_by_one(n: int, start: int, count: int) -> None:
    shuffle = order(5, n)
    whole = shuffle.records(np.arange(start, start + count, dtype=np.int64)).tolist()
    assert whole == [int(shuffle.records(np.array([p], np.int64))[0]) for p in range(start, start + count)]


# Known answers: they may never change, or repeated visits would carry other records after an upgrade.
KNOWN = [
    (0, 10, 0, [2, 8, 5, 9, 7, 4, 6, 1, 3, 0, 1, 5, 6, 8, 9, 7, 0, 4, 3, 2]),
    (42, 1000, 1000, [599, 663, 35, 945, 620, 845, 686, 343]),
    (2**53 - 1, 1_000_003, 5_000_015, [207289, 102075, 246677, 450975, 300682, 636285]),
]


@pytest.mark.parametrize(("seed", "n", "start", "expected"), KNOWN)
def test_known_answers(seed: int, n: int, start: int, expected: list[int]) -> None:
    assert order(seed, n).records(np.arange(start, start + len(expected), dtype=np.int64)).tolist() == expected


def test_epochs_and_seeds_differ_and_records_are_spread() -> None:
    n = 4096
    first = order(1, n).records(np.arange(n, dtype=np.int64))
    second = order(1, n).records(np.arange(n, 2 * n, dtype=np.int64))
    other = order(2, n).records(np.arange(n, dtype=np.int64))
    for a, b in [(first, second), (first, other), (first, np.arange(n))]:
        assert (a == b).sum() < 20  # about 1 is expected of random permutations
        assert abs(np.corrcoef(a, b)[0, 1]) < 0.08  # 5 standard deviations


def test_takes_no_memory_for_huge_datasets() -> None:
    n = 2**50
    records = order(9, n).records(np.arange(2**40, 2**40 + 1000, dtype=np.int64))
    assert len(set(records.tolist())) == 1000
    assert records.max() < n
