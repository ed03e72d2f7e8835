"""Hashing a visit's records on several cores: the leaves that `leaf_hashes` gives, in the same order. Knows no tree, no key and no memory.

Hashing every record is the longest part of taking a visit in, and records are hashed apart from one another; the hashes let other
threads run while they work on more than 2 KiB. What each thread holds is a view: no byte of a record is copied (law L7).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from gpu_agent.hardware.pieces import SideBySide, dealt
from shared.protocol.membership import leaf_hashes

SHORT_RECORD: Final = 8192
"""Below this the interpreter's own work outweighs the hash's, and threads only wait for one another."""
LEAST_BYTES: Final = 512 * 1024
"""Bytes that one call hashes, the last one fewer, and that are worth a thread of their own."""


class LeafCrew:
    """`crew`: who hashes."""

    def __init__(self, crew: SideBySide) -> None:
        self._crew = crew

    def __call__(self, salt: bytes, indexes: Sequence[int], records: memoryview) -> list[bytes]:
        """As `leaf_hashes`. Raises: ValueError, as it does."""
        size = len(records) // max(1, len(indexes))
        step = -(-LEAST_BYTES // max(1, size))
        if size < SHORT_RECORD or len(indexes) < 2 * step:
            return leaf_hashes(salt, indexes, records)

        def part(at: int) -> list[bytes]:
            return leaf_hashes(salt, indexes[at : at + step], records[at * size : (at + step) * size])

        return [leaf for found in dealt(self._crew, range(0, len(indexes), step), part, least=1) for leaf in found]
