"""The digest of memory that holds nothing: what a scrubbed region must read back as. Knows no memory."""

from __future__ import annotations

from functools import lru_cache
from typing import Final

from blake3 import blake3

_ZEROS: Final = bytes(1 << 20)


@lru_cache(maxsize=64)
def zeros_digest(length: int) -> bytes:
    """BLAKE3 (32 bytes) of `length` zero bytes, hashed in pieces; remembered, for it costs ten times as much as the read-back itself."""
    hasher = blake3()
    for _ in range(length // len(_ZEROS)):
        hasher.update(_ZEROS)
    hasher.update(_ZEROS[: length % len(_ZEROS)])
    return hasher.digest()
