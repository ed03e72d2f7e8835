"""The doors of time and chance. Knows no protocol."""

from __future__ import annotations

import os
import time
from collections.abc import Callable

Clock = Callable[[], float]
"""Seconds since the epoch."""

Entropy = Callable[[int], bytes]
"""n -> n unpredictable bytes."""


def system_clock() -> float:
    """The machine's clock: seconds since the epoch."""
    return time.time()


def system_entropy(size_bytes: int) -> bytes:
    """The kernel's generator."""
    return os.urandom(size_bytes)
