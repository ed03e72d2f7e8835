"""The growing tree agrees with RFC 9162 as `shared.protocol.merkle` states and verifies it."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from orchestrator.ledger.tree import MerkleTree
from shared.protocol import merkle


def _tree(size: int) -> tuple[MerkleTree, list[bytes]]:
    hashes = [merkle.leaf_hash(bytes([i % 256, i // 256])) for i in range(size)]
    tree = MerkleTree()
    for value in hashes:
        tree.append(value)
    return tree, hashes


@given(st.integers(0, 70), st.data())
def test_roots_and_proofs_are_those_of_the_standard(size: int, data: st.DataObject) -> None:
    tree, hashes = _tree(size)
    old = data.draw(st.integers(0, size))
    assert tree.root(old) == merkle.root(hashes[:old])
    assert tree.consistency(old, size) == merkle.consistency_proof(old, hashes)
    merkle.verify_consistency(old, tree.root(old), size, tree.root(), tree.consistency(old, size))
    if size:
        index = data.draw(st.integers(0, size - 1))
        assert tree.inclusion(index, size) == merkle.inclusion_proof(index, hashes)
        merkle.verify_inclusion(hashes[index], index, size, tree.inclusion(index, size), tree.root())
