"""Known answers of the dataset commitment: leaves, root and multi-proofs of eleven records (computed independently of this code)."""

from __future__ import annotations

import pytest

from shared.claims.visit import CursorRange
from shared.crypto.schedule import dataset_salt
from shared.errors import VerificationFailed
from shared.protocol.membership import check_membership, commitment, dataset_root, leaf_hashes, root_of

SALT = bytes(range(32))
RECORDS = [bytes([i]) * 6 + i.to_bytes(2, "little") for i in range(11)]
FIRST_LEAF = "1ba5b8f8473d70f639c205376d9087efffcda50a30abdc693732924d438f002d"
LAST_LEAF = "8d0d4aabe4304b45f640ee3709dd16ff664ce6d3344f63ad7731d321eaa0798e"
TREE = "e85dd0c842492bec3a02f7722f1e3808a16350425a4142fff4948b3d60d5e6b5"
ROOT = "83da17c9946381d46437da54b79aaf1ef6f1358e5fb70e9d6c138fee989fdce2"
PROOF_2_7_10 = (
    "19b8a845e623398539231a0387ce60a100ff82a4ae381effe1503599fac003763d8aaba3cec2ae0742feda1ffcb47d88b0ceead81a8ff834d1cf329f50966257"
    "741d8c8157fba6d69ca816edb5ce13d8d55bbb13efb59a15c167efd8d5027f8f5c551800cf80c488d659e73fe84e677de5cf479f154c4924007806b5df61d19f"
    "5e93d58fdb5b332d8181460b0386fd27158c858047588a1830298ee595b9f1b0"
)
"""Hashes of leaves 3 and 6, then of the pairs 0, 2 and 4; the eleventh leaf stands alone and needs none."""
PROOF_WRAPPING = (
    "faf03d6d3f7a4944d106f67f56c77478ef0190442d42be72adae3da5358742f80de8e26a57431ea60b00a544e91b649cb646d72571f06a17da3996a301d4043e"
    "b150ff02a595eaac6aa239c215b77bfb76c5543f29c49648e469b998a6e9eab0"
)
"""For records 9, 10, 0, 1: leaf 8, pair 1 (leaves 2 and 3), and the four leaves from 4 on."""
STATED_WRAPPING = "65d7d3f7c7f4681c13ca6f295388e384db9e9de6788be6eec05ee3ae40555201"
"""Of the same four records, under the salt 20 21 … 3f."""


def test_a_salt_is_derived_from_the_cvms_key_holder_session_and_dataset() -> None:
    session = "s_0123456789abcdef"
    expected = "06333e69a7082cae0ee3eeba2867e23912dc889ae6c18b564964777db4148c2f"
    assert dataset_salt(bytes(range(32)), "north", session, "ehr").hex() == expected
    others = [("south", session, "ehr"), ("north", session[:-1] + "0", "ehr"), ("north", session, "ehr2")]
    assert len({expected, *(dataset_salt(bytes(range(32)), *of).hex() for of in others)}) == 4


def test_leaves_and_root() -> None:
    leaves = leaf_hashes(SALT, range(11), memoryview(b"".join(RECORDS)))
    assert (leaves[0].hex(), leaves[10].hex()) == (FIRST_LEAF, LAST_LEAF)
    assert root_of(list(enumerate(leaves)), 11, b"").hex() == TREE
    assert dataset_root(bytes.fromhex(TREE), 11, 8).hex() == ROOT


def test_a_proof_of_three_scattered_records() -> None:
    chosen = [2, 7, 10]
    leaves = leaf_hashes(SALT, chosen, memoryview(b"".join(RECORDS[i] for i in chosen)))
    assert root_of(list(zip(chosen, leaves, strict=True)), 11, bytes.fromhex(PROOF_2_7_10)).hex() == TREE


def test_a_visit_that_wraps_round_the_end() -> None:
    data = b"".join(RECORDS[i] for i in (9, 10, 0, 1))
    cursor, proof, root = CursorRange(start=9, count=4), bytes.fromhex(PROOF_WRAPPING), bytes.fromhex(ROOT)
    check_membership(memoryview(data), proof, root, salt=SALT, cursor=cursor, records=11)
    with pytest.raises(VerificationFailed):
        check_membership(memoryview(data), proof, root, salt=SALT, cursor=CursorRange(start=8, count=4), records=11)


def test_what_is_stated_of_a_visits_records() -> None:
    leaves = leaf_hashes(SALT, [9, 10, 0, 1], memoryview(b"".join(RECORDS[i] for i in (9, 10, 0, 1))))
    assert commitment(bytes(range(32, 64)), b"".join(leaves)).hex() == STATED_WRAPPING
