"""Work over memory, side by side: every byte once and in order, and nobody left at work when the caller goes on."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Iterator

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gpu_agent.crew import Crew
from gpu_agent.hardware import pieces
from gpu_agent.hardware.hbm import HBM, Extent
from gpu_agent.hardware.pieces import PIECE, Alone, cut, dealt
from shared.errors import OutOfMemory, VerificationFailed

KEY = bytes(range(32))
SIZES = st.lists(st.integers(0, 5 * PIECE), max_size=4)


@pytest.fixture
def crew() -> Iterator[Crew]:
    made = Crew(threads=3)
    yield made
    made.close()


@given(SIZES)
def test_pieces_are_every_byte_once_and_in_order(lengths: list[int]) -> None:
    found = cut(lengths)
    assert all(0 < length <= PIECE for _, _, length in found)
    for extent, whole in enumerate(lengths):
        mine = [(at, length) for number, at, length in found if number == extent]
        assert [at for at, _ in mine] == list(range(0, whole, PIECE))
        assert sum(length for _, length in mine) == whole
    assert found == sorted(found)


@settings(deadline=None)
@given(st.integers(0, 40), st.integers(1, 9))
def test_what_is_dealt_comes_back_in_order_whoever_did_it(count: int, threads: int) -> None:
    crew = Crew(threads)
    try:
        todo = [(number, 0, 1) for number in range(count)]
        assert dealt(crew, todo, lambda piece: piece[0]) == list(range(count)) == dealt(Alone(), todo, lambda p: p[0])
    finally:
        crew.close()


def test_little_is_the_callers_own_and_much_is_everybodys(crew: Crew) -> None:
    def names(count: int) -> set[str]:
        def work(piece: pieces.Piece) -> str:
            time.sleep(0.001)
            return threading.current_thread().name

        return set(dealt(crew, [(0, at, 1) for at in range(count)], work))

    mine = threading.current_thread().name
    assert names(1) == names(2 * pieces.LEAST - 1) == {mine}
    assert mine in names(30)
    assert len(names(30)) > 1


def test_a_fault_is_the_callers_and_nobody_is_at_work_when_it_hears_of_it(crew: Crew) -> None:
    working = threading.Semaphore(0)

    def slow() -> None:
        time.sleep(0.05)
        working.release()

    def bad() -> None:
        raise VerificationFailed("no")

    for parts in ([bad, slow, slow], [slow, bad, slow]):
        with pytest.raises(VerificationFailed):
            crew(parts)
    assert all(working.acquire(blocking=False) for _ in range(4))


def test_memory_is_the_same_whoever_goes_over_it(crew: Crew) -> None:
    length, found = 5 * PIECE + 4097, []
    data = os.urandom(length)
    for who in (Alone(), crew):
        memory = HBM(1 << 28, os.urandom, crew=who)
        one, two = memory.allocate(length), memory.allocate(length + 1)
        memory.write(one, data)
        memory.view(two, length + 1)[length] = 7
        memory.copy([(two, one, length)])
        assert bytes(memory.view(two, length)) == data
        assert memory.view(two, length + 1)[length] == 7, "and nothing beyond"
        tags = memory.tags(KEY, [(1, Extent(one, length)), (1, Extent(two, length)), (2, Extent(two, length + 1))])
        assert tags[0] == tags[1] != tags[2]
        found.append(tags)
        with pytest.raises(OutOfMemory):
            memory.copy([(two, one, length), (one, two, length + PIECE)])
        memory.scrub(two, length + 1)
        assert not any(memory.view(two, length + 1))
        assert bytes(memory.view(one, length)) == data
        memory.close()
    assert found[0] == found[1]


@pytest.mark.parametrize("at", [0, 3 * PIECE, 5 * PIECE + 4096])
def test_a_byte_that_stays_is_seen_by_whoever_reads_it_back(
    crew: Crew, monkeypatch: pytest.MonkeyPatch, at: int
) -> None:
    memory = HBM(1 << 28, os.urandom, crew=crew)
    address = memory.allocate(5 * PIECE + 4097)
    memory.view(address, 5 * PIECE + 4097)[at] = 1
    with monkeypatch.context() as patch:
        patch.setattr(memory, "_clear", lambda address, length: None)
        with pytest.raises(VerificationFailed, match="not zero"):
            memory.scrub(address, 5 * PIECE + 4097)
    memory.close()
