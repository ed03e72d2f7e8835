"""Digests made while records land: of every record once, wherever chunks cut them, and never where they could be of other bytes."""

from __future__ import annotations

import os
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpu_agent.hardware.early_digests import Digests, EarlyDigests, early_digests
from gpu_agent.leaf_crew import LeafCrew
from shared.names import TravelMode
from shared.protocol.membership import DIGESTED_BYTES, digests, leaf_hashes

SALT = bytes(range(32))
SIZE = DIGESTED_BYTES + 3


class Crew:
    """Hashes when it is waited for, and remembers what it was given."""

    def __init__(self) -> None:
        self.seen: list[int] = []
        self.waited = 0

    def digesting(self, records: memoryview, size: int) -> Digests:
        self.seen.append(len(records))

        def wait() -> list[bytes]:
            self.waited += 1
            return digests(records, size)

        return wait


@given(count=st.integers(1, 12), chunk=st.integers(1, 5 * SIZE))
def test_every_record_is_hashed_once_wherever_chunks_cut_it(count: int, chunk: int) -> None:
    memory, crew = memoryview(os.urandom(count * SIZE)), Crew()
    early = EarlyDigests(crew, SIZE, lambda at, length: memory[at : at + length])
    for at in range(chunk, len(memory) + chunk, chunk):
        early.landed(min(at, len(memory)))
    assert sum(crew.seen) == len(memory)
    assert early.leaves(SALT, range(count), memoryview(b"")) == leaf_hashes(SALT, range(count), memory)


def test_what_is_dropped_was_waited_for() -> None:
    memory, crew = memoryview(bytes(3 * SIZE)), Crew()
    early = EarlyDigests(crew, SIZE, lambda at, length: memory[at : at + length])
    early.landed(SIZE)
    early.landed(2 * SIZE)
    early.drop()
    early.drop()
    assert crew.waited == 2


def test_a_digest_that_failed_holds_up_nobody() -> None:
    def failed() -> list[bytes]:
        raise MemoryError

    crew: Any = SimpleNamespace(digesting=lambda records, size: failed)
    early = EarlyDigests(crew, SIZE, lambda at, length: memoryview(bytes(length)))
    early.landed(SIZE)
    with pytest.raises(MemoryError):
        early.leaves(SALT, [0], memoryview(b""))
    early.drop()


@pytest.mark.parametrize(
    ("size", "mode", "crew", "expected"),
    [
        (DIGESTED_BYTES, TravelMode.SCOPED, True, True),
        (DIGESTED_BYTES, TravelMode.DIRECT, True, True),
        (DIGESTED_BYTES - 1, TravelMode.SCOPED, True, False),  # its entry is the record, and the salt comes before it
        (DIGESTED_BYTES, TravelMode.PAPER, True, False),  # its key may write over what has landed
        (DIGESTED_BYTES, TravelMode.SCOPED, False, False),
    ],
)
def test_which_visits_are_hashed_as_they_land(size: int, mode: TravelMode, crew: bool, expected: bool) -> None:
    grant: Any = SimpleNamespace(record_bytes=size, mode=mode)
    hashing = LeafCrew(threads=1) if crew else leaf_hashes
    found = early_digests(grant, hashing, lambda at, length: memoryview(b""))
    assert (found is not None) == expected
