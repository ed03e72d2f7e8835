"""The doors of time and chance, and ids made from them. Knows no protocol."""

from __future__ import annotations

import base64
import hashlib
import os
import time
from collections.abc import Callable

Clock = Callable[[], float]
"""Seconds since the epoch."""

Entropy = Callable[[int], bytes]
"""n -> n unpredictable bytes."""

ID_BYTES = 16


def system_clock() -> float:
    """The machine's clock: seconds since the epoch."""
    return time.time()


def system_entropy(size_bytes: int) -> bytes:
    """The kernel's generator."""
    return os.urandom(size_bytes)


def new_id(prefix: str, entropy: Entropy) -> str:
    """A fresh id: prefix, dash, 26 lower-case base32 characters (128 bits)."""
    return _id(prefix, entropy(ID_BYTES))


def stable_id(prefix: str, *parts: str) -> str:
    """The id of an act that may be repeated: the same parts give the same id.

    The parts are length-prefixed, so that ("ab", "c") and ("a", "bc") differ.
    """
    digest = hashlib.sha256(prefix.encode())
    for part in parts:
        encoded = part.encode()
        digest.update(len(encoded).to_bytes(8, "big") + encoded)
    return _id(prefix, digest.digest()[:ID_BYTES])


def _id(prefix: str, value: bytes) -> str:
    return f"{prefix}-{base64.b32encode(value).decode().rstrip('=').lower()}"
