"""A visit's records within the approved dataset: every true proof holds, and nothing else does. The reference is `tests.dataset_tree`."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from shared.claims.visit import CursorRange
from shared.errors import VerificationFailed
from shared.protocol.membership import check_membership, dataset_root, leaf_hashes, parents, proof_limit, siblings
from shared.protocol.merkle import leaf_hash
from shared.protocol.merkle import root as tree_root
from shared.protocol.record_order import records_of
from tests import dataset_tree

SALT = bytes(range(32))
SIZE = 5


def dataset(n: int) -> list[bytes]:
    return [i.to_bytes(SIZE, "big") for i in range(100, 100 + n)]


def visit(records: list[bytes], cursor: CursorRange) -> tuple[bytes, bytes]:
    """(data, proof) of an honest holder."""
    indexes = records_of(cursor, len(records)).tolist()
    return b"".join(records[i] for i in indexes), dataset_tree.proof(SALT, records, indexes)


def check(data: bytes, proof: bytes, cursor: CursorRange, n: int, **changes: Any) -> None:
    root, salt = changes.get("root", dataset_tree.root(SALT, dataset(n))), changes.get("salt", SALT)
    check_membership(memoryview(data), proof, root, salt=salt, cursor=cursor, records=n)


cursors = st.builds(
    CursorRange, start=st.integers(0, 200), count=st.integers(1, 40), order=st.sampled_from(["sequential", "shuffled"]),
    seed=st.integers(0, 9),
)  # fmt: skip


def test_the_tree_is_that_of_rfc_9162() -> None:
    for n in range(1, 40):
        records = dataset(n)
        leaves = leaf_hashes(SALT, range(n), memoryview(b"".join(records)))
        assert leaves == [leaf_hash(dataset_tree.entry(SALT, i, r)) for i, r in enumerate(records)]
        level = leaves
        while len(level) > 1:
            level = parents(level)
        assert level[0] == tree_root(leaves)
        assert dataset_root(level[0], n, SIZE) == dataset_tree.root(SALT, records)


@given(n=st.integers(1, 60), cursor=cursors)
@settings(deadline=None)
def test_what_the_cursor_names_is_proven_within_the_limit(n: int, cursor: CursorRange) -> None:
    data, proof = visit(dataset(n), cursor)
    assert len(proof) == 32 * len(list(siblings(sorted(set(records_of(cursor, n).tolist())), n)))
    assert len(proof) <= proof_limit(cursor, n)
    check(data, proof, cursor, n)


@given(data=st.data(), n=st.integers(2, 60), cursor=cursors)
@settings(deadline=None, max_examples=300)
def test_nothing_else_is_proven(data: st.DataObject, n: int, cursor: CursorRange) -> None:
    records = dataset(n)
    sent, proof = visit(records, cursor)
    mine = [sent[at : at + SIZE] for at in range(0, len(sent), SIZE)]
    at, other = data.draw(st.integers(0, len(mine) - 1)), data.draw(st.sampled_from(records))
    swapped = data.draw(st.permutations(mine))
    foreign = visit(records, cursor.model_copy(update={"start": cursor.start + data.draw(st.integers(1, n - 1))}))
    offset = data.draw(st.integers(0, max(0, len(proof) - 1)))
    flipped = proof[:offset] + bytes([proof[offset] ^ 1]) + proof[offset + 1 :] if proof else proof
    for sent_, proof_ in [
        (b"".join([*mine[:at], other, *mine[at + 1 :]]), proof),  # one record exchanged for another of the same dataset
        (b"".join([*mine[:at], bytes(SIZE), *mine[at + 1 :]]), proof),  # one that the dataset does not hold
        (b"".join(swapped), proof),  # the same records in another order
        (b"".join([*mine[:at], mine[at - 1], *mine[at + 1 :]]), proof),  # one twice, one missing
        foreign,  # a true proof of other records
        (sent, flipped),
        (sent, proof[:-32]),
        (sent, proof[:-1]),
        (sent, proof + bytes(32)),
        (sent, b""),
    ]:
        if (sent_, proof_) != (sent, proof):
            with pytest.raises(VerificationFailed) as caught:
                check(sent_, proof_, cursor, n)
            assert caught.value.code == "data-not-approved"


@given(n=st.integers(1, 60), cursor=cursors)
@settings(deadline=None)
def test_salt_root_size_and_cursor_are_bound(n: int, cursor: CursorRange) -> None:
    records = dataset(n)
    data, proof = visit(records, cursor)
    other = dataset_tree.root(SALT, [*records[:-1], bytes(SIZE)])
    for changes in ({"salt": bytes(32)}, {"root": other}, {"root": dataset_tree.levels(SALT, records)[-1][0]}):
        with pytest.raises(VerificationFailed):
            check(data, proof, cursor, n, **changes)
    root = dataset_tree.root(SALT, records)
    for size in (n - 1, n + 1):
        if size:
            with pytest.raises(VerificationFailed):
                check(data, proof, cursor, size, root=root)


def test_a_record_that_comes_twice_must_be_the_same_twice() -> None:
    cursor = CursorRange(start=1, count=6)  # of three records: each twice
    data, proof = visit(dataset(3), cursor)
    check(data, proof, cursor, 3)
    with pytest.raises(VerificationFailed) as caught:
        check(data[:-SIZE] + bytes(SIZE), proof, cursor, 3)
    assert "twice" in caught.value.detail


def test_a_leaf_is_not_a_node_and_a_salt_has_its_length() -> None:
    records = dataset(4)
    level = dataset_tree.levels(SALT, records)[1]
    assert dataset_root(tree_root(level), 4, SIZE) == dataset_tree.root(
        SALT, records
    )  # the tree alone could be taken for it
    for n in (1, 2):  # and its shape is bound, so it cannot be
        with pytest.raises(VerificationFailed):
            check(b"".join(records[:n]), b"", CursorRange(start=0, count=n), n, root=dataset_tree.root(SALT, records))
    with pytest.raises(ValueError, match="31 bytes"):
        leaf_hashes(bytes(31), [0], memoryview(bytes(5)))
