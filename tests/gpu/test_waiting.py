"""How many workers are made beside a launch on a device, and what they may take: never more than such a launch leaves."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from gpu_agent.compute.waiting import MOST, Waiting

GIB = 1 << 30
LIKE = "train"


def short(alone: int, each: int, taken: int) -> Waiting:
    """After two launches that were over long before the one worker beside each was made."""
    waiting = Waiting()
    waiting.alone(alone)
    for _ in range(3):
        if not waiting.are(1):
            waiting.learn(alone - each)
        waiting.beside(LIKE)
        waiting.took(LIKE, taken)
        waiting.ended(1, 0.04, 0.4)
    return waiting


def test_of_what_nothing_is_known_nothing_is_made_beside_it() -> None:
    waiting = Waiting()
    assert (waiting.beside(LIKE), waiting.free()) == ((0, 0), None)
    waiting.alone(GIB)
    assert not waiting.are(1)
    assert (waiting.beside(LIKE), waiting.free()) == ((0, 0), None)
    waiting.learn(GIB // 2)
    assert (waiting.beside(LIKE), waiting.free()) == ((1, 0), GIB // 2)


def test_short_launches_have_several_made_at_once_and_use_them_up() -> None:
    waiting = short(40 * GIB, GIB // 2, GIB)
    number, room = waiting.beside(LIKE)
    assert (number, room) == (MOST, (40 * GIB - MOST * GIB // 2 - 2 * GIB) // MOST)
    for left in range(MOST, 0, -1):
        waiting.ended(left, 0.04, 0.6)
        assert waiting.are(left), "they are of the kind that was learned"
        assert waiting.free() == 40 * GIB - left * GIB // 2
        if left > 1:
            assert waiting.beside(LIKE) == (left - 1, 0)
    assert waiting.beside(LIKE) == (number, room)


def test_a_launch_as_long_as_the_making_has_one_made_beside_it() -> None:
    waiting = short(40 * GIB, GIB // 2, GIB)
    waiting.ended(1, 0.3, 0.2)
    assert waiting.beside(LIKE)[0] == MOST, "that was none for which one was made"
    waiting.ended(1, 0.3, 0.2)
    assert waiting.beside(LIKE) == (1, 40 * GIB - GIB // 2 - 2 * GIB)
    waiting.ended(1, 0.04, 0.4)
    assert waiting.beside("another") == (1, 0)


def test_a_launch_whose_workers_nobody_waited_for_says_nothing_of_its_length() -> None:
    waiting = short(40 * GIB, GIB // 2, GIB)
    waiting.beside(LIKE)
    waiting.ended(0, 30.0, None)
    waiting.forget()
    waiting.are(1)
    waiting.learn(39 * GIB)
    assert waiting.beside(LIKE)[0] == 1, "of their kind it is not known what each holds"
    waiting.ended(1, 0.04, 0.4)
    waiting.are(1)
    waiting.learn(39 * GIB)
    assert waiting.beside(LIKE)[0] == MOST


@given(
    st.integers(1, 80 * GIB), st.integers(0, 4 * GIB), st.integers(1, 40 * GIB),
)  # fmt: skip
def test_together_they_leave_what_such_a_launch_takes_twice(alone: int, each: int, taken: int) -> None:
    each = min(each, alone)
    waiting = short(alone, each, taken)
    number, room = waiting.beside(LIKE)
    assert 1 <= number <= MOST
    if room:
        assert number * (each + room) + 2 * taken <= alone
    if number > 1:
        assert room > 2 * taken, "each can warm up with a whole batch"
