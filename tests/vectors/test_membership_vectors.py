"""Known answers of the dataset commitment: leaves, root and multi-proofs of eleven records (computed independently of this code)."""

from __future__ import annotations

import pytest

from shared.claims.visit import CursorRange
from shared.crypto.schedule import dataset_salt
from shared.errors import VerificationFailed
from shared.protocol.membership import check_membership, commitment, dataset_root, leaf_hashes, root_of

SALT = bytes(range(32))
RECORDS = [bytes([i]) * 6 + i.to_bytes(2, "little") for i in range(11)]
FIRST_LEAF = "5827d73e170a9df9af8c0fb12d3216df6feceee95212b115a3a090e34e35ae40"
LAST_LEAF = "cd20319871514ac10f89df16d907bbb2a74c8d13aa5235a3c520e9d657dd10b2"
TREE = "7d945aa4d47230937c395ec8d3cf26394be894e344a19142779bba9b5a5a6a18"
ROOT = "443bc224b03b256df7ba799abd0c8f8acc585b2acb69c454e4e5ac3e931ae0fc"
PROOF_2_7_10 = (
    "a402221f0139bb192cfc67ec6d3b17840ceb717cfe4208c13cd3f4343aaf369c14461872628a20770a249bbb7e11b320fe8ed6dc429eaf3654e6a6faa3be7f0a"
    "aa883402e5df1edfb8c1bb7f3c4e74f5a6ddebea3e921899d50ae885ae906edbd721baf21378c22a0e267636e8a1017ffd0e05897b466beee8c66de0d156771c"
    "7e68f3138a6bf5be4b157e934113b378f68a93f7d7d578d658bbb945d204ca1e"
)
"""Hashes of leaves 3 and 6, then of the pairs 0, 2 and 4; the eleventh leaf stands alone and needs none."""
PROOF_WRAPPING = (
    "f915eaec115091254c6544a1049288f86e1e1e2fa1926a3a3755860341913fc09c4b08b43cbb56e58ab7466c9628b04b4402238d847b2b1a1e04b3883ad906e0"
    "f1401c4dcfe28ff21961bbae2c9e23f4167afbecccfda6b1df5f8f1d9c520b86"
)
"""For records 9, 10, 0, 1: leaf 8, pair 1 (leaves 2 and 3), and the four leaves from 4 on."""
STATED_WRAPPING = "ce952ac9fbd2da511af0d2021b6e47451cbfb29baacd675d01aa2e7d6808a026"
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


@pytest.mark.parametrize(
    ("length", "expected"),
    [
        (4095, "84ff048037789d1556a5781adb393a782889538b18b8ae76dd2ee685a3822f28"),
        (4096, "469d5c971bd0a4eb05d87f5a41ad59f873c2e7c5d76d560496ce15aaec65fb64"),
        (5000, "007db5979dbd1fd36cda56323c1dfb21e041b193aaa8aee055d76072e9dfd92c"),
    ],
)
def test_long_records_stand_in_their_entry_by_their_digest(length: int, expected: str) -> None:
    record = bytes(at % 251 for at in range(length))  # as BLAKE3's own vectors are filled
    assert [leaf.hex() for leaf in leaf_hashes(SALT, [7, 7], memoryview(2 * record))] == [expected, expected]


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
