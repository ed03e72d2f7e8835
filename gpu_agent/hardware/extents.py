"""Stretches of GPU memory, and what is said of scrubbed ones. Knows no memory."""

from __future__ import annotations

from dataclasses import dataclass


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
