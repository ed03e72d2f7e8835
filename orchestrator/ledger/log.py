"""Leaves and signed heads of a session's log. Knows no HTTP; the tree's size lives in the journal's facts.

A leaf is a receipt (COSE bytes) or an event (`shared.protocol.log_events`): restores, recalls,
roll-backs and repeats are leaves themselves (design 4.3), so nobody can hide one.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from sqlalchemy import Connection

from orchestrator.ledger.tree import MerkleTree
from orchestrator.sessions.book import Row
from orchestrator.tables import HEADS, LEAVES
from shared.crypto.signing import PartyKey
from shared.crypto.tree_head import TreeHead, sign_tree_head
from shared.protocol.log_events import event_bytes
from shared.protocol.merkle import leaf_hash
from shared.service.statements import find_row, insert_row, put_row


@dataclass(frozen=True)
class NewLeaf:
    """A leaf about to be appended: what the journal's fact says of it, and its row."""

    fact: dict[str, Any]
    row: Row


def event_leaf(tree: MerkleTree, session: str, kind: str, details: dict[str, Any]) -> NewLeaf:
    """The leaf of something that happened to the session besides a closed visit."""
    return _leaf(tree, session, "event", event_bytes(session, kind, details), {"visit": details.get("visit")})


def receipt_leaf(tree: MerkleTree, session: str, cose: bytes, *, visit: str, holder: str, outcome: str) -> NewLeaf:
    """The leaf of one visit's receipt."""
    return _leaf(tree, session, "receipt", cose, {"visit": visit, "holder": holder, "outcome": outcome})


def _leaf(tree: MerkleTree, session: str, kind: str, leaf: bytes, columns: dict[str, Any]) -> NewLeaf:
    index = tree.size
    values = {"session": session, "idx": index, "kind": kind, "leaf": leaf, **columns}

    def write(connection: Connection) -> None:
        insert_row(connection, LEAVES, values)

    return NewLeaf({"index": index, "hash": leaf_hash(leaf).hex()}, write)


@dataclass(frozen=True)
class SignedHead:
    """A tree head and the session signing key's signature (64 bytes)."""

    head: TreeHead
    signature: bytes
    signing_key: bytes

    def columns(self) -> dict[str, Any]:
        """As it is stored, less its session."""
        return {
            "size": self.head.size, "root": self.head.root.hex(), "time": self.head.time,
            "signature": self.signature, "signing_key": self.signing_key.hex(),
        }  # fmt: skip


def sign_head(tree: MerkleTree, session: str, key: PartyKey, at: float) -> SignedHead:
    """The log's head as it stands."""
    head = TreeHead(session, tree.size, tree.root(), int(at))
    return SignedHead(head, sign_tree_head(head, key), key.public)


def head_row(signed: SignedHead) -> Row:
    """Keep the newest signed head for readers."""
    values = signed.columns()

    def write(connection: Connection) -> None:
        put_row(connection, HEADS, {"session": signed.head.session}, values)

    return write


def read_head(connection: Connection, session: str) -> dict[str, Any] | None:
    """The newest stored head, as a row."""
    return find_row(connection, HEADS, {"session": session})
