"""What holders remember of a log, held against the log itself: the decision of a start (design 4.3). Pure: knows no storage, no HTTP.

A log that lost leaves, or that has others in their place, is a database that somebody put back or changed: nothing may go on from it.
"""

from __future__ import annotations

from collections.abc import Container, Sequence
from enum import StrEnum

from orchestrator.ledger.tree import MerkleTree
from shared.attestation.head_statements import VerifiedHeadStatement
from shared.errors import VerificationFailed


class Standing(StrEnum):
    """How a remembered head lies to the log as it is."""

    CONTAINED = "contained"  # the log is the remembered one, or has grown from it
    AHEAD = "ahead"
    OTHER = "other"
    LACKING = "lacking"  # the head is contained, but a receipt that was handed out since is not


_ROLLED_BACK = (
    "log-rolled-back",
    "the database behind this orchestrator was rolled back",
    "Stop the orchestrator, put back the newest copy of its database and data_dir, and start it again; "
    "where none is left, submit a new session.",
)
_CONTRADICTIONS = {
    Standing.AHEAD: _ROLLED_BACK,
    Standing.LACKING: _ROLLED_BACK,
    Standing.OTHER: (
        "log-split-view",
        "holder and orchestrator were shown different logs of this session",
        "Compare the holder's receipts with this log (gput receipts verify) to see who holds which leaves; put back the "
        "database that the receipts belong to, or submit a new session.",
    ),
}  # fmt: skip


def standing(tree: MerkleTree, size: int, root: bytes, receipt: bytes | None) -> Standing:
    """How the head of `size` leaves under `root` (32 bytes), and a receipt's leaf hash, lie to `tree`."""
    if size > tree.size:
        return Standing.AHEAD
    if tree.root(size) != root:
        return Standing.OTHER
    return Standing.CONTAINED if receipt is None or tree.holds(receipt) else Standing.LACKING


def contradiction(tree: MerkleTree, stated: VerifiedHeadStatement) -> VerificationFailed | None:
    """What is wrong with the log if this holder's memory is right; None when log and memory agree.

    The error names size and root on both sides and the remedy; its code is `log-rolled-back` or `log-split-view`.
    """
    found = _CONTRADICTIONS.get(standing(tree, stated.size, stated.root, stated.receipt))
    if found is None:
        return None
    code, meaning, remedy = found
    size = min(stated.size, tree.size)
    remembered = f"a log of {stated.size} leaves with root {stated.root.hex()}"
    if stated.receipt is not None:
        remembered += f" and a receipt with leaf hash {stated.receipt.hex()}"
    own = f"{tree.size} leaves, at {size} of them root {tree.root(size).hex()}"
    return VerificationFailed(
        f"{stated.holder} remembers {remembered}, this orchestrator has {own}: {meaning}",
        code=code, remedy=remedy, expected=remembered, got=own,
    )  # fmt: skip


def awaited(active: Sequence[str], quorum: int, stated: Container[str]) -> tuple[str, ...]:
    """Whose head is still missing, in order; nobody's once `quorum` of the active holders have stated theirs."""
    missing = tuple(holder for holder in active if holder not in stated)
    return () if len(active) - len(missing) >= quorum else missing
