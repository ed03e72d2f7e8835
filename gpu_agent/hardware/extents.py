"""Stretches of GPU memory, and what is said of scrubbed ones. Knows no memory."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from blake3 import blake3

_ZEROS: Final = bytes(1 << 20)
_KNOWN: Final[dict[int, bytes]] = {}
_MOST_KNOWN: Final = 64


@dataclass(frozen=True)
class Extent:
    """Bytes of HBM: address and length."""

    address: int
    length: int


@dataclass(frozen=True)
class ScrubProof:
    """Read-back of a scrubbed extent: BLAKE3 (32 bytes) of the bytes found there, equal to that of `length` zeros."""

    address: int
    length: int
    digest: bytes


def zeros_digest(length: int) -> bytes:
    """BLAKE3 (32 bytes) of `length` zero bytes; remembered, for it costs ten times as much as the read-back itself."""
    known = _KNOWN.get(length)
    if known is None:
        hasher = blake3()
        for _ in range(length // len(_ZEROS)):
            hasher.update(_ZEROS)
        hasher.update(_ZEROS[: length % len(_ZEROS)])
        if len(_KNOWN) >= _MOST_KNOWN:
            _KNOWN.clear()
        known = _KNOWN[length] = hasher.digest()
    return known
