"""RFC 9162 trees: published vectors, every pair of sizes, and a proof proves nothing else."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shared.canonical import sha256
from shared.crypto.signing import PartyKey
from shared.crypto.tree_head import TreeHead, VerifiedTreeHead, sign_tree_head, verify_tree_head
from shared.errors import BadRequest, VerificationFailed
from shared.protocol.merkle import (
    EMPTY_ROOT,
    consistency_proof,
    inclusion_proof,
    leaf_hash,
    root,
    verify_consistency,
    verify_inclusion,
)

# The test leaves and roots of Certificate Transparency's reference implementation (merkle_tree_test.cc).
CT_LEAVES = [
    bytes.fromhex(text)
    for text in (
        "", "00", "10", "2021", "3031", "40414243", "5051525354555657", "606162636465666768696a6b6c6d6e6f",
    )
]  # fmt: skip
CT_ROOTS = {
    1: "6e340b9cffb37a989ca544e6bb780a2c78901d3fb33738768511a30617afa01d",
    2: "fac54203e7cc696cf0dfcb42c92a1d9dbaf70ad9e621f4bd8d98662f00e3c125",
    3: "aeb6bcfe274b70a14fb067a5e5578264db0fa9b51af5e0ba159158f329e06e77",
    7: "ddb89be403809e325750d3d263cd78929c2942b7942a34b77e122c9594a74c8c",
    8: "5dc9da79a70659a9ad559cb701ded9a2ab9d823aad2f4960cfe370eff4604328",
}
HASHES = [leaf_hash(bytes([number])) for number in range(33)]


def _by_definition(leaves: list[bytes]) -> bytes:
    """Level by level, promoting an odd node: another algorithm for the same tree."""
    level = list(leaves)
    while len(level) > 1:
        pairs = [sha256(b"\x01" + level[at] + level[at + 1]) for at in range(0, len(level) - 1, 2)]
        level = pairs + ([level[-1]] if len(level) % 2 else [])
    return level[0] if level else sha256(b"")


def test_published_roots() -> None:
    assert EMPTY_ROOT.hex() == "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"
    for size, expected in CT_ROOTS.items():
        assert root([leaf_hash(leaf) for leaf in CT_LEAVES[:size]]).hex() == expected


def test_every_leaf_and_every_pair_of_sizes() -> None:
    for size in range(len(HASHES) + 1):
        leaves = HASHES[:size]
        assert root(leaves) == _by_definition(leaves)
        for index in range(size):
            verify_inclusion(leaves[index], index, size, inclusion_proof(index, leaves), root(leaves))
        for old in range(size + 1):
            verify_consistency(old, root(leaves[:old]), size, root(leaves), consistency_proof(old, leaves))


@given(st.data())
def test_an_inclusion_proof_proves_nothing_else(data: st.DataObject) -> None:
    size = data.draw(st.integers(2, 33))
    index = data.draw(st.integers(0, size - 1))
    leaves = HASHES[:size]
    proof, head = inclusion_proof(index, leaves), root(leaves)
    other = data.draw(st.integers(0, size - 1).filter(lambda value: value != index))
    at = data.draw(st.integers(0, len(proof) - 1))
    changed = [*proof[:at], sha256(proof[at]), *proof[at + 1 :]]
    for leaf, position, proof_, head_ in (
        (leaves[other], index, proof, head),
        (leaves[index], other, proof, head),
        (leaves[index], index, changed, head),
        (leaves[index], index, proof[:-1], head),
        (leaves[index], index, [*proof, head], head),
        (leaves[index], index, proof, root(HASHES[: size - 1])),
        (leaves[index], size, proof, head),
        (leaves[index], index, [*proof[:-1], proof[-1][:31]], head),
    ):
        with pytest.raises(VerificationFailed):
            verify_inclusion(leaf, position, size, proof_, head_)


@given(st.data())
def test_a_fork_has_no_consistency_proof(data: st.DataObject) -> None:
    size = data.draw(st.integers(2, 33))
    old = data.draw(st.integers(1, size - 1))
    forked_at = data.draw(st.integers(0, old - 1))
    leaves = HASHES[:size]
    forked = [*leaves[:forked_at], leaf_hash(b"forged"), *leaves[forked_at + 1 :]]
    good, old_root, head = consistency_proof(old, leaves), root(leaves[:old]), root(leaves)
    for proof, old_root_, head_ in (
        (consistency_proof(old, forked), old_root, root(forked)),
        (good, root(forked[:old]), head),
        (good, old_root, root(forked)),
        (good[:-1], old_root, head),
        ([*good, head], old_root, head),
        ([], old_root, head),
    ):
        with pytest.raises(VerificationFailed):
            verify_consistency(old, old_root_, size, head_, proof)
    with pytest.raises(VerificationFailed):
        verify_consistency(size, head, old, old_root, good)


def test_edges_of_consistency() -> None:
    verify_consistency(0, EMPTY_ROOT, 0, EMPTY_ROOT, [])
    for old, old_root, size, head, proof in (
        (0, EMPTY_ROOT, 0, HASHES[0], []),
        (0, HASHES[0], 3, root(HASHES[:3]), []),
        (0, EMPTY_ROOT, 3, root(HASHES[:3]), [HASHES[0]]),
        (3, root(HASHES[:3]), 3, root(HASHES[1:4]), []),
        (-1, EMPTY_ROOT, 3, root(HASHES[:3]), []),
    ):
        with pytest.raises(VerificationFailed):
            verify_consistency(old, old_root, size, head, proof)
    with pytest.raises(BadRequest):
        inclusion_proof(3, HASHES[:3])
    with pytest.raises(BadRequest):
        consistency_proof(4, HASHES[:3])


def test_tree_head_is_bound_in_every_field() -> None:
    key = PartyKey.generate()
    head = TreeHead("s_0123456789abcdef", 5, root(HASHES[:5]), 1_700_000_000)
    signature = sign_tree_head(head, key)
    assert verify_tree_head(head, key.public, signature).head == head
    for changed in (
        TreeHead("s_0123456789abcdee", head.size, head.root, head.time),
        TreeHead(head.session, 6, head.root, head.time),
        TreeHead(head.session, head.size, root(HASHES[:6]), head.time),
        TreeHead(head.session, head.size, head.root, head.time + 1),
    ):
        with pytest.raises(VerificationFailed):
            verify_tree_head(changed, key.public, signature)
    with pytest.raises(VerificationFailed):
        verify_tree_head(head, PartyKey.generate().public, signature)
    with pytest.raises(BadRequest):
        TreeHead(head.session, 1, b"short", 0)
    with pytest.raises(TypeError):
        VerifiedTreeHead(head, key.public)
