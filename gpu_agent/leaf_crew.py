"""Hashing a visit's records on several cores: the leaves that `leaf_hashes` gives, in the same order. Knows no tree, no key and no memory.

Hashing every record is the longest part of taking a visit in, and records are hashed apart from one another; the hashes let other
threads run while they work on more than 2 KiB. What each thread holds is a view: no byte of a record is copied (law L7).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

from gpu_agent.crew import Crew
from shared.protocol.membership import leaf_hashes

SHORT_RECORD: Final = 8192
"""Below this the interpreter's own work outweighs the hash's, and threads only wait for one another."""
LEAST_BYTES: Final = 512 * 1024
"""What is worth a thread of its own."""


class LeafCrew:
    """`crew`: who hashes."""

    def __init__(self, crew: Crew) -> None:
        self._crew = crew

    def __call__(self, salt: bytes, indexes: Sequence[int], records: memoryview) -> list[bytes]:
        """As `leaf_hashes`. Raises: ValueError, as it does."""
        size, parts = len(records) // max(1, len(indexes)), min(self._crew.threads, len(records) // LEAST_BYTES)
        if size < SHORT_RECORD or parts < 2:
            return leaf_hashes(salt, indexes, records)
        step = -(-len(indexes) // parts)

        def part(at: int) -> Callable[[], list[bytes]]:
            return lambda: leaf_hashes(salt, indexes[at : at + step], records[at * size : (at + step) * size])

        return [leaf for done in self._crew([part(at) for at in range(0, len(indexes), step)]) for leaf in done]
