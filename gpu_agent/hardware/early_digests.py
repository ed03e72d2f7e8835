"""Digests of a visit's long records, begun as they land: only the salt is awaited for their leaves. Knows no key and no port.

A record's digest needs no salt (`shared.protocol.membership`), so hashing need not wait for the closing record, which brings it. What is
hashed lies in HBM then, opened and with its tag verified, and nothing but the grant's own records is written there before it closes.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from itertools import chain
from typing import Protocol, runtime_checkable

from shared.claims.visit import Grant
from shared.protocol.membership import DIGESTED_BYTES, leaves_of
from shared.protocol.travel import TRAVEL

Digests = Callable[[], list[bytes]]
"""The digests, waited for."""


@runtime_checkable
class HashesAhead(Protocol):
    """Whoever computes leaves on threads of its own."""

    def digesting(self, records: memoryview, size: int) -> Digests:
        """Begin to make the digests of records of `size` bytes that lie end to end in `records`; every digest's wait must be called."""


class EarlyDigests:
    """Those of one visit. `view(offset, length)`: bytes of what has landed."""

    def __init__(self, crew: HashesAhead, size: int, view: Callable[[int, int], memoryview]) -> None:
        self._crew, self._size, self._view = crew, size, view
        self._begun = 0
        self._due: list[Digests] = []

    def landed(self, length: int) -> None:
        """So many bytes lie there from the beginning on: have whatever records are whole now hashed."""
        whole = length // self._size - self._begun
        if whole:
            records = self._view(self._begun * self._size, whole * self._size)
            self._due.append(self._crew.digesting(records, self._size))
            self._begun += whole

    def leaves(self, salt: bytes, indexes: Sequence[int], records: memoryview) -> list[bytes]:
        """As `leaf_hashes`; `records` are those that landed, and are not read again."""
        found, self._due = list(chain.from_iterable(due() for due in self._due)), []
        return leaves_of(salt, indexes, found)

    def drop(self) -> None:
        """Wait for what is under way, which reads the memory, and forget it."""
        for due in self._due:
            with suppress(Exception):  # whatever it came to, nobody wants it any more
                due()
        self._due = []


def early_digests(grant: Grant, hash_leaves: object, view: Callable[[int, int], memoryview]) -> EarlyDigests | None:
    """For a visit of this grant; None where its leaves are to be made at its end: its records are short, nobody hashes on other threads,
    or its key commands all of the GPU, so that what has landed may yet be written over."""
    if grant.record_bytes < DIGESTED_BYTES or TRAVEL[grant.mode].whole_gpu or not isinstance(hash_leaves, HashesAhead):
        return None
    return EarlyDigests(hash_leaves, grant.record_bytes, view)
