"""The Merkle tree of RFC 9162 section 2.1 over SHA-256: roots, inclusion and consistency proofs. Knows no log and no signature."""

from __future__ import annotations

from collections.abc import Sequence
from hashlib import sha256 as _sha256

from shared.canonical import sha256
from shared.errors import BadRequest, VerificationFailed

HASH_BYTES = 32
EMPTY_ROOT = sha256(b"")
MAX_PROOF = 64


def leaf_hash(leaf: bytes) -> bytes:
    """SHA-256(00 ‖ leaf), 32 bytes (RFC 9162 2.1.1)."""
    return sha256(b"\x00" + leaf)


def root(leaf_hashes: Sequence[bytes]) -> bytes:
    """Root over leaf hashes, 32 bytes; of no leaves: SHA-256 of the empty string."""
    if not leaf_hashes:
        return EMPTY_ROOT
    if len(leaf_hashes) == 1:
        return leaf_hashes[0]
    split = _split(len(leaf_hashes))
    return node_hash(root(leaf_hashes[:split]), root(leaf_hashes[split:]))


def inclusion_proof(index: int, leaf_hashes: Sequence[bytes]) -> list[bytes]:
    """Audit path of leaf `index`, from the leaf upwards (RFC 9162 2.1.3.1). Raises: BadRequest."""
    size = len(leaf_hashes)
    if not 0 <= index < size:
        raise BadRequest(f"the tree of {size} leaves has no leaf {index}", code="no-such-leaf")
    if size == 1:
        return []
    split = _split(size)
    if index < split:
        return [*inclusion_proof(index, leaf_hashes[:split]), root(leaf_hashes[split:])]
    return [*inclusion_proof(index - split, leaf_hashes[split:]), root(leaf_hashes[:split])]


def consistency_proof(old_size: int, leaf_hashes: Sequence[bytes]) -> list[bytes]:
    """Proof that the tree extends its first `old_size` leaves (RFC 9162 2.1.4.1). Raises: BadRequest."""
    if not 0 <= old_size <= len(leaf_hashes):
        raise BadRequest(f"no tree of {old_size} leaves within {len(leaf_hashes)}", code="no-such-tree")
    if old_size in (0, len(leaf_hashes)):
        return []
    return _subproof(old_size, leaf_hashes, complete=True)


def verify_inclusion(leaf: bytes, index: int, size: int, proof: Sequence[bytes], expected_root: bytes) -> None:
    """Check that leaf hash `leaf` is at `index` of the tree of `size` leaves (RFC 9162 2.1.3.2).

    Raises:
        VerificationFailed: `bad-inclusion-proof`.
    """
    _check_shape(proof, "bad-inclusion-proof")
    if not 0 <= index < size:
        raise _failed(f"leaf {index} is outside a tree of {size}", "bad-inclusion-proof")
    position, last, result = index, size - 1, leaf
    for sibling in proof:
        if last == 0:
            raise _failed("the proof is too long", "bad-inclusion-proof")
        if position & 1 or position == last:
            result = node_hash(sibling, result)
            while not position & 1 and position:
                position, last = position >> 1, last >> 1
        else:
            result = node_hash(result, sibling)
        position, last = position >> 1, last >> 1
    if last != 0 or result != expected_root:
        raise _failed("the inclusion proof does not lead to the root", "bad-inclusion-proof")


def verify_consistency(old_size: int, old_root: bytes, size: int, expected_root: bytes, proof: Sequence[bytes]) -> None:
    """Check that the tree (`size`, `expected_root`) extends (`old_size`, `old_root`) (RFC 9162 2.1.4.2).

    Raises:
        VerificationFailed: `bad-consistency-proof`; a shrunken or forked log ends here.
    """
    code = "bad-consistency-proof"
    _check_shape(proof, code)
    if not 0 <= old_size <= size:
        raise _failed(f"a tree of {size} leaves does not extend one of {old_size}", code)
    if old_size in (0, size):
        known = EMPTY_ROOT if old_size == 0 else expected_root
        if proof or old_root != known or (size == 0 and expected_root != EMPTY_ROOT):
            raise _failed("the trees differ or the proof is not empty", code)
        return
    # A complete subtree of a power-of-two size stands for itself and is left out of the proof.
    path = [old_root, *proof] if old_size & (old_size - 1) == 0 else list(proof)
    if not path:
        raise _failed("the proof is too short", code)
    if _replay(old_size, size, path, code) != (old_root, expected_root):
        raise _failed("the consistency proof does not lead to both roots", code)


def _replay(old_size: int, size: int, path: list[bytes], code: str) -> tuple[bytes, bytes]:
    position, last = old_size - 1, size - 1
    while position & 1:
        position, last = position >> 1, last >> 1
    old = new = path[0]
    for sibling in path[1:]:
        if last == 0:
            raise _failed("the proof is too long", code)
        if position & 1 or position == last:
            old, new = node_hash(sibling, old), node_hash(sibling, new)
            while not position & 1 and position:
                position, last = position >> 1, last >> 1
        else:
            new = node_hash(new, sibling)
        position, last = position >> 1, last >> 1
    if last != 0:
        raise _failed("the proof is too short", code)
    return old, new


def _subproof(old_size: int, leaves: Sequence[bytes], *, complete: bool) -> list[bytes]:
    if old_size == len(leaves):
        return [] if complete else [root(leaves)]
    split = _split(len(leaves))
    if old_size <= split:
        return [*_subproof(old_size, leaves[:split], complete=complete), root(leaves[split:])]
    return [*_subproof(old_size - split, leaves[split:], complete=False), root(leaves[:split])]


def _split(size: int) -> int:
    """Largest power of two below `size`."""
    return 1 << ((size - 1).bit_length() - 1)


def node_hash(left: bytes, right: bytes) -> bytes:
    """SHA-256(01 ‖ left ‖ right), 32 bytes (RFC 9162 2.1.1)."""
    return _sha256(b"\x01" + left + right).digest()


def _check_shape(proof: Sequence[bytes], code: str) -> None:
    if len(proof) > MAX_PROOF or any(len(item) != HASH_BYTES for item in proof):
        raise _failed("a proof is at most 64 hashes of 32 bytes", code)


def _failed(why: str, code: str) -> VerificationFailed:
    return VerificationFailed(why, code=code)
