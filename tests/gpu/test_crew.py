"""Work over memory, side by side: every byte once and in order, and nobody left at work when the caller goes on."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Iterator, Sequence

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gpu_agent.crew import Crew
from gpu_agent.hardware import pieces
from gpu_agent.hardware.hbm import HBM, Extent
from gpu_agent.hardware.pieces import PIECE, Alone, Once, cut, dealt
from shared.canonical import blake3_256
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
    mine, started, over = threading.get_ident(), threading.Barrier(3), list[int]()

    def work(*, mine_is_bad: bool) -> None:
        started.wait()  # all three are at it
        if (threading.get_ident() == mine) is mine_is_bad:
            raise VerificationFailed("no")
        time.sleep(0.05)
        over.append(1)

    with pytest.raises(VerificationFailed):
        crew(lambda: work(mine_is_bad=True), 2)
    assert len(over) == 2
    with pytest.raises(VerificationFailed):
        crew(lambda: work(mine_is_bad=False), 2)
    assert len(over) == 3


def test_who_has_not_begun_when_the_caller_is_through_is_not_waited_for(crew: Crew) -> None:
    held, busy = threading.Event(), threading.Barrier(3)

    def elsewhere() -> None:
        busy.wait()
        held.wait()

    others = [crew._pool.submit(elsewhere) for _ in range(2)]
    busy.wait()
    try:
        assert dealt(crew, list(range(30)), lambda piece: piece) == list(range(30))
        assert not any(one.done() for one in others)
    finally:
        held.set()


@pytest.mark.parametrize("first", ["the caller", "another"])
def test_work_that_one_does_is_done_once_and_others_go_on_meanwhile(crew: Crew, first: str) -> None:
    made, mine = list[int](), threading.get_ident()
    going_on, begun = threading.Event(), threading.Event()

    def make() -> bytes:
        made.append(threading.get_ident())
        begun.set()
        assert going_on.wait(10), "somebody who came later went on"
        return b"made"

    once = Once(make)

    def work() -> None:
        if (threading.get_ident() == mine) is (first == "the caller"):
            once.begin()
        else:
            begun.wait(10)
            once.begin()  # somebody is at it: nothing to wait for
            going_on.set()

    crew(work, 1)
    assert once.made() == b"made"
    assert len(made) == 1
    assert (made == [mine]) is (first == "the caller")


def test_a_failure_of_what_one_does_is_its_own() -> None:
    def make() -> bytes:
        raise IndexError("not a sign that somebody else did it")

    with pytest.raises(IndexError, match="sign"):
        Once(make).begin()


@pytest.mark.parametrize("lengths", [(5 * PIECE + 4097, 3 * PIECE), (1, 9 * PIECE), (PIECE, 0), (4097,)])
def test_a_duplicate_reads_as_its_tags_and_digest_say(crew: Crew, lengths: tuple[int, ...]) -> None:
    data = [os.urandom(length) for length in lengths]
    for who in (Alone(), crew):
        memory = HBM(1 << 28, os.urandom, crew=who)
        sources, copies = ([memory.allocate(max(1, length)) for length in lengths] for _ in range(2))
        for source, one in zip(sources, data, strict=True):
            memory.write(source, one)
        moves = list(zip(copies, sources, lengths, strict=True))
        cut_off = Extent(copies[0], lengths[0] // 2), Extent(copies[0] + lengths[0] // 2, -(-lengths[0] // 2))
        tags, digest = memory.duplicate(KEY, 6, moves, [(b"head", cut_off[0]), (b"", cut_off[1])])
        assert [bytes(memory.view(copy, length)) for copy, _, length in moves] == data
        expected = [(6 + number, Extent(copy, length)) for number, (copy, _, length) in enumerate(moves)]
        assert tags == memory.tags(KEY, expected)
        assert digest == blake3_256(b"head" + data[0])
        memory.view(copies[0], 1)[0] ^= 1
        assert memory.tags(KEY, expected)[0] != tags[0]
        with pytest.raises(OutOfMemory):
            memory.duplicate(KEY, 8, [(copies[0], sources[0], lengths[0] + 2 * PIECE)], [])
        memory.close()


def test_a_copy_that_goes_wrong_is_told_as_it_lies(crew: Crew, monkeypatch: pytest.MonkeyPatch) -> None:
    """Tags and digest are of what is there, not of what should be."""
    memory, length = HBM(1 << 28, os.urandom, crew=crew), 5 * PIECE
    source, copy = memory.allocate(length), memory.allocate(length)
    memory.write(source, os.urandom(length))
    mover = HBM._mover

    def wrong(memory: HBM, moves: Sequence[tuple[int, int, int]]) -> Callable[[pieces.Piece], None]:
        move = mover(memory, moves)

        def piece(one: pieces.Piece) -> None:
            move(one)
            if one[1] == 3 * PIECE:
                memory.view(moves[0][0] + one[1], 1)[0] ^= 1

        return piece

    monkeypatch.setattr(HBM, "_mover", wrong)
    tags, digest = memory.duplicate(KEY, 1, [(copy, source, length)], [(b"", Extent(copy, length))])
    assert tags == memory.tags(KEY, [(1, Extent(copy, length))]) != memory.tags(KEY, [(1, Extent(source, length))])
    assert digest == memory.digest(copy, length) != memory.digest(source, length)
    memory.close()


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
