"""The signed head of a session's receipt log. Knows no leaf, no store and no proof.

Signature: Ed25519, label `gput/tree-head`, over deterministic CBOR ["gput/tree-head/1", session, size, root, time].
"""

from __future__ import annotations

from dataclasses import InitVar, dataclass

from shared.canonical import cbor_bytes
from shared.crypto.signing import PartyKey, verify
from shared.errors import BadRequest

PROFILE = "gput/tree-head/1"
LABEL = "gput/tree-head"


@dataclass(frozen=True)
class TreeHead:
    """`size` leaves under `root` (32 bytes) at `time` (seconds since 1970). Raises: BadRequest on wrong lengths."""

    session: str
    size: int
    root: bytes
    time: int

    def __post_init__(self) -> None:
        if len(self.root) != 32 or self.size < 0 or self.time < 0:
            raise BadRequest("a tree head has a 32-byte root, a size and a time", code="malformed-tree-head")

    def to_bytes(self) -> bytes:
        """What is signed."""
        return cbor_bytes([PROFILE, self.session, self.size, self.root, self.time])


_MINT = object()


@dataclass(frozen=True)
class VerifiedTreeHead:
    """A head whose signature was checked. Only `verify_tree_head` makes it."""

    head: TreeHead
    signer: bytes
    _mint: InitVar[object] = None  # kept nowhere, so that `replace` cannot carry it into a changed copy

    def __post_init__(self, _mint: object) -> None:
        if _mint is not _MINT:
            raise TypeError("VerifiedTreeHead is made by verify_tree_head only")


def sign_tree_head(head: TreeHead, key: PartyKey) -> bytes:
    """64-byte signature."""
    return key.sign(LABEL, head.to_bytes())


def verify_tree_head(head: TreeHead, public: bytes, signature: bytes) -> VerifiedTreeHead:
    """The head, believed. Raises: VerificationFailed `bad-signature`."""
    verify(public, LABEL, head.to_bytes(), signature)
    return VerifiedTreeHead(head, public, _MINT)
