"""Whatever the pieces are, the digest is BLAKE3 of them end to end; nothing of them stays behind."""

from __future__ import annotations

from blake3 import blake3
from hypothesis import example, given
from hypothesis import strategies as st

from shared.canonical.block_hasher import BLOCK, BlockHasher

LENGTHS = st.lists(
    st.one_of(st.integers(0, 200), st.integers(BLOCK - 2, BLOCK + 2), st.integers(0, 3 * BLOCK)), max_size=8
)


@given(LENGTHS)
@example([])
@example([BLOCK])
@example([1, BLOCK - 1, BLOCK])
@example([1, 3 * BLOCK, 1])
def test_pieces_are_hashed_end_to_end(lengths: list[int]) -> None:
    data = bytes(range(251)) * (sum(lengths) // 251 + 1)
    hasher, at = BlockHasher(), 0
    for length in lengths:
        hasher.update(data[at : at + length])
        at += length
    assert hasher.digest() == blake3(data[:at]).digest()


def test_what_waited_for_its_block_is_zeroed() -> None:
    hasher = BlockHasher()
    hasher.update(b"somebody's" * 10)
    hasher.digest()
    assert bytes(hasher._kept) == bytes(BLOCK)


def test_numbers_of_any_width_are_bytes() -> None:
    hasher = BlockHasher()
    hasher.update(memoryview(b"12345678").cast("I"))
    assert hasher.digest() == blake3(b"12345678").digest()
