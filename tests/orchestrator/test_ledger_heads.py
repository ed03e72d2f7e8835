"""What a holder remembers of the log, held against the log: every way the two can lie to one another, and who is waited for."""

from __future__ import annotations

import pytest

from orchestrator.ledger.heads import Standing, awaited, contradiction, standing
from orchestrator.ledger.tree import MerkleTree
from shared.attestation.head_statements import sign_head_statement, verify_head_statement
from shared.protocol.merkle import EMPTY_ROOT, leaf_hash, root
from tests.orchestrator.orchestrator_samples import SESSION, key

LEAVES = [leaf_hash(bytes([number])) for number in range(5)]


def tree(*leaves: bytes) -> MerkleTree:
    made = MerkleTree()
    for leaf in leaves:
        made.append(leaf)
    return made


@pytest.mark.parametrize(
    ("own", "size", "remembered", "receipt", "expected"),
    [
        (0, 0, EMPTY_ROOT, None, Standing.CONTAINED),  # a new session, a holder that saw nothing
        (3, 0, EMPTY_ROOT, None, Standing.CONTAINED),
        (3, 3, root(LEAVES[:3]), None, Standing.CONTAINED),
        (5, 3, root(LEAVES[:3]), None, Standing.CONTAINED),  # the log has grown since
        (5, 3, root(LEAVES[:3]), LEAVES[1], Standing.CONTAINED),
        (5, 3, root(LEAVES[:3]), LEAVES[3], Standing.CONTAINED),  # a receipt that came after the head
        (3, 3, root(LEAVES[:3]), LEAVES[3], Standing.LACKING),  # the last visit's close was taken away
        (5, 3, root(LEAVES[:3]), bytes(32), Standing.LACKING),
        (2, 3, root(LEAVES[:3]), None, Standing.AHEAD),
        (2, 3, root(LEAVES[:3]), LEAVES[1], Standing.AHEAD),
        (0, 1, root(LEAVES[:1]), None, Standing.AHEAD),  # put back to before the first visit
        (2, 3, bytes(32), None, Standing.AHEAD),
        (3, 3, root([*LEAVES[:2], LEAVES[4]]), None, Standing.OTHER),
        (5, 3, root([*LEAVES[:2], LEAVES[4]]), LEAVES[1], Standing.OTHER),
        (3, 0, root(LEAVES[:1]), None, Standing.OTHER),
    ],
)
def test_every_way_a_memory_can_lie_to_the_log(
    own: int, size: int, remembered: bytes, receipt: bytes | None, expected: Standing
) -> None:
    log = tree(*LEAVES[:own])
    assert standing(log, size, remembered, receipt) is expected
    signed = sign_head_statement(
        key(1), session=SESSION, holder="h0", challenge="c1" * 32, size=size, root=remembered, receipt=receipt
    )
    stated = verify_head_statement(signed, key=key(1).public, session=SESSION, holder="h0", challenge="c1" * 32)
    error = contradiction(log, stated)
    if expected is Standing.CONTAINED:
        assert error is None
        return
    assert error is not None
    assert error.code == ("log-split-view" if expected is Standing.OTHER else "log-rolled-back")
    for told in ("h0", str(size), remembered.hex(), str(own), log.root(min(size, own)).hex(), (receipt or b"").hex()):
        assert told in error.detail
    assert error.remedy


@pytest.mark.parametrize(
    ("active", "quorum", "stated", "expected"),
    [
        ("abc", 3, "", "abc"),
        ("abc", 3, "ca", "b"),
        ("abc", 3, "abc", ""),
        ("abc", 2, "a", "bc"),  # any of the others will do
        ("abc", 2, "ac", ""),
        ("ab", 2, "ax", "b"),  # x vetoed: neither awaited nor counted
        ("a", 1, "", "a"),
    ],
)
def test_the_quorum_is_awaited_by_name(active: str, quorum: int, stated: str, expected: str) -> None:
    assert awaited(active, quorum, stated) == tuple(expected)
