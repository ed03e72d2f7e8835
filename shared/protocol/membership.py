"""Proof that a visit's records are those that its cursor names in the approved dataset. Pure: knows no key, no storage, no device.

The tree is RFC 9162's (`merkle`) over one entry a record, in index order:

    entry(i) = "gput/record/2" ‖ salt (32) ‖ i (u64, big-endian) ‖ body(i)           leaf = SHA-256(00 ‖ entry)
    body(i)  = record i's bytes; where the dataset's records have 4096 bytes or more, their BLAKE3 (32)
    dataset root = SHA-256(CBOR["gput/dataset/2", number of records, bytes of a record, root of the tree])

The salt is the holder's: without it nobody can try out guesses of a record against root or leaves. All entries of a dataset have one
length, so no entry is a prefix of another; the salt lies inside the entry, so a second salt would be a second preimage.

Long records stand in their entry by a digest, as a long key does in HMAC: BLAKE3 takes a third of SHA-256's time over them, and more
than it over short ones. Which body a dataset has follows from its records' length, and the root binds that, so the one is never taken
for the other; another record under the same leaf is a collision of either hash. The digest is of the record alone, so that a GPU
may make it before it knows the salt; it hides nothing, and like the record it goes nowhere but into the entry.

A multi-proof is the concatenation of the hashes that a reader lacks who has the leaves of a set of indexes: level by level from the
leaves upwards, from left to right. Its length follows from indexes and tree size; nothing else is accepted.

    commitment   = BLAKE3, keyed with the visit's own salt (32), over the leaves of its records, end to end in the cursor's order

So no record is hashed twice: who finds the same leaves has the same records, at the same indexes, under the same dataset salt.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from hashlib import sha256 as _sha256

from blake3 import blake3

from shared.canonical import cbor_bytes, keyed_blake3, sha256
from shared.claims.visit import CursorRange
from shared.errors import VerificationFailed
from shared.protocol.merkle import HASH_BYTES, node_hash
from shared.protocol.record_order import records_of

SALT_BYTES = 32
NOT_APPROVED = "data-not-approved"
"""The code of every refusal here."""
HashLeaves = Callable[[bytes, Sequence[int], memoryview], list[bytes]]
"""`leaf_hashes`, or what gives the same."""
RULE = 2
"""How leaves and root are made, as a number: what was approved under another one is another root, whatever the records."""
DIGESTED_BYTES = 4096
"""Records of this length or more stand in their entry by their digest."""
_ENTRY = f"\x00gput/record/{RULE}".encode()
_ROOT = f"gput/dataset/{RULE}"


def leaf_hashes(salt: bytes, indexes: Sequence[int], records: memoryview) -> list[bytes]:
    """Leaves of the records that lie end to end in `records` (all of one length) and have these indexes.

    Copies no record: in a GPU no byte of one may stay behind outside HBM (law L7). Raises: ValueError on a salt of another length.
    """
    if len(salt) != SALT_BYTES:
        raise ValueError(f"the salt has {len(salt)} bytes, not {SALT_BYTES}")
    size, head, found = len(records) // max(1, len(indexes)), _ENTRY + salt, []
    if size >= DIGESTED_BYTES:
        return leaves_of(salt, indexes, digests(records, size))
    for number, index in enumerate(indexes):
        hasher = _sha256(head + index.to_bytes(8, "big"))
        hasher.update(records[number * size : (number + 1) * size])
        found.append(hasher.digest())
    return found


def digests(records: memoryview, size: int) -> list[bytes]:
    """What stands in the entries of long records, which lie end to end in `records`, `size` bytes each. Copies none, as `leaf_hashes`."""
    # One hasher for all: to make or to copy one costs as much as hashing two kilobytes. The last reset clears its buffer, which
    # would hold a record's end when it is freed (law L7).
    hasher, found = blake3(), []
    for at in range(0, len(records), size):
        hasher.update(records[at : at + size])
        found.append(hasher.digest())
        hasher.reset()
    return found


def leaves_of(salt: bytes, indexes: Sequence[int], bodies: Sequence[bytes]) -> list[bytes]:
    """Leaves of the records that have these indexes, by their entries' bodies. The salt is not looked at."""
    head = _ENTRY + salt
    return [
        _sha256(head + index.to_bytes(8, "big") + body).digest() for index, body in zip(indexes, bodies, strict=True)
    ]


def commitment(salt: bytes, leaves: bytes) -> bytes:
    """What is stated of a visit's records, 32 bytes, by their leaves end to end. `salt`: the visit's own (32 bytes), fresh, so that
    nobody can try out guesses."""
    return keyed_blake3(salt, leaves)


def parents(level: Sequence[bytes]) -> list[bytes]:
    """The next level of the tree: pairs hashed, an odd last node passed up as it is (the tree of RFC 9162, from the leaves up)."""
    # `node_hash`, written out: one call less for each node of a tree.
    found = [_sha256(b"\x01" + left + right).digest() for left, right in zip(level[::2], level[1::2], strict=False)]
    return found + list(level[-1:]) if len(level) % 2 else found


def dataset_root(tree_root: bytes, records: int, record_bytes: int) -> bytes:
    """What a holder approves: the tree's root bound to its shape, 32 bytes."""
    return sha256(cbor_bytes([_ROOT, records, record_bytes, tree_root]))


def siblings(indexes: Sequence[int], size: int) -> Iterator[tuple[int, int]]:
    """(level, position) of every hash of a multi-proof, in order. `indexes`: ascending, distinct, in [0, size)."""
    level, here = 0, list(indexes)
    while size > 1:
        above, number = [], 0
        while number < len(here):
            position = here[number]
            paired = not position & 1 and number + 1 < len(here) and here[number + 1] == position + 1
            if not paired and position ^ 1 < size:
                yield level, position ^ 1
            above.append(position >> 1)
            number += 2 if paired else 1
        level, here, size = level + 1, above, (size + 1) >> 1


def proof_limit(cursor: CursorRange, records: int) -> int:
    """The most bytes a multi-proof for any `cursor.count` records of that order can have; part of a grant's byte budget."""
    # On a level of n nodes each known node lacks at most its sibling; a run of records (which may wrap) lacks one at either end.
    most = 2 if cursor.order == "sequential" else cursor.count
    hashes = 0
    while records > 1:
        hashes += min(most, records >> 1)
        records = (records + 1) >> 1
    return hashes * HASH_BYTES


def root_of(leaves: Sequence[tuple[int, bytes]], size: int, proof: bytes) -> bytes:
    """Root of a tree of `size` that has these leaves (index, hash; ascending, distinct) and, for all else, a multi-proof's hashes.

    Raises:
        VerificationFailed: `data-not-approved`, the proof has another length than these indexes need.
    """
    at, level = 0, list(leaves)
    while size > 1:
        if len(level) == size:  # all of a level is known: nothing is lacking from here up
            level = list(enumerate(_to_the_top([node for _, node in level])))
            break
        above, number = [], 0
        while number < len(level):
            position, here = level[number]
            if not position & 1 and number + 1 < len(level) and level[number + 1][0] == position + 1:
                number += 1
                here = node_hash(here, level[number][1])
            elif position ^ 1 < size:
                other, at = proof[at : at + HASH_BYTES], at + HASH_BYTES
                here = node_hash(other, here) if position & 1 else node_hash(here, other)
            above.append((position >> 1, here))
            number += 1
        level, size = above, (size + 1) >> 1
    if at != len(proof):
        raise _failed("their proof has another length than these records need")
    return level[0][1]


def _to_the_top(level: list[bytes]) -> list[bytes]:
    while len(level) > 1:
        level = parents(level)
    return level


def check_membership(
    data: memoryview, proof: bytes, expected_root: bytes, *, salt: bytes, cursor: CursorRange, records: int,
    hash_leaves: HashLeaves = leaf_hashes,
) -> list[bytes]:  # fmt: skip
    """The leaves of `data`, once it is checked to be exactly the records that `cursor` names, in its order, in the dataset of
    `records` under `expected_root`.

    A cursor that wraps names a record more than once; each time it must be the same.

    Raises:
        VerificationFailed: `data-not-approved`; says what does not fit, and quotes nothing.
    """
    indexes = records_of(cursor, records).tolist()
    hashed = hash_leaves(salt, indexes, data)
    leaves = dict(zip(indexes, hashed, strict=True))
    if len(leaves) < len(indexes) and any(leaves[index] != leaf for index, leaf in zip(indexes, hashed, strict=True)):
        raise _failed("one that it names twice came with other bytes the second time")
    found = dataset_root(root_of(sorted(leaves.items()), records, proof), records, len(data) // cursor.count)
    if found != expected_root:
        raise _failed("records and proof do not lead to its root")
    return hashed


def _failed(why: str) -> VerificationFailed:
    return VerificationFailed(
        f"the records are not those that the cursor names in the approved dataset: {why}", code=NOT_APPROVED
    )
