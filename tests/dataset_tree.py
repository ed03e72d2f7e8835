"""The commitment to a dataset written once more, the slow way: whole levels in lists. Test support; shares no code with the product."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence

import cbor2
from blake3 import blake3

DIGESTED_BYTES = 4096


def entry(salt: bytes, index: int, record: bytes) -> bytes:
    body = record if len(record) < DIGESTED_BYTES else blake3(record).digest()
    return b"gput/record/2" + salt + index.to_bytes(8, "big") + body


def leaf(salt: bytes, index: int, record: bytes) -> bytes:
    return hashlib.sha256(b"\x00" + entry(salt, index, record)).digest()


def commitment(visit_salt: bytes, salt: bytes, indexes: Sequence[int], records: Sequence[bytes]) -> str:
    """What is stated of a visit's records (hex)."""
    leaves = b"".join(leaf(salt, index, record) for index, record in zip(indexes, records, strict=False))
    return blake3(leaves, key=visit_salt).hexdigest()


def levels(salt: bytes, records: Sequence[bytes]) -> list[list[bytes]]:
    """Every node, from the leaves up to the root."""
    found = [[leaf(salt, i, r) for i, r in enumerate(records)]]
    while len(found[-1]) > 1:
        below, above = found[-1], []
        for at in range(0, len(below), 2):
            pair = below[at : at + 2]
            above.append(hashlib.sha256(b"\x01" + pair[0] + pair[1]).digest() if len(pair) == 2 else pair[0])
        found.append(above)
    return found


def root(salt: bytes, records: Sequence[bytes]) -> bytes:
    """The dataset root that a holder approves."""
    shape = ["gput/dataset/2", len(records), len(records[0]), levels(salt, records)[-1][0]]
    return hashlib.sha256(cbor2.dumps(shape, canonical=True)).digest()


def proof(salt: bytes, records: Sequence[bytes], indexes: Sequence[int]) -> bytes:
    """The multi-proof: on each level what is not known, where the node beside it is."""
    known, out = set(indexes), b""
    for level in levels(salt, records)[:-1]:
        wanted = {i ^ 1 for i in known if i ^ 1 not in known and i ^ 1 < len(level)}
        out += b"".join(level[i] for i in sorted(wanted))
        known = {i >> 1 for i in known}
    return out


def split(data: bytes, record_bytes: int) -> list[bytes]:
    return [data[at : at + record_bytes] for at in range(0, len(data), record_bytes)]
