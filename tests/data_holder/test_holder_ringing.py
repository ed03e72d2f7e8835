"""Rings and answers held to one another: by a bell that answers as it is told."""

from __future__ import annotations

import time
from collections import deque
from typing import Any
from unittest.mock import Mock

import pytest

from data_holder.ringing import MAX_UNDER_WAY, RING_BYTES, Ringing
from data_holder.sealing import SealedRecord
from data_holder.slots import Lying, Slot
from shared.errors import ProtocolViolation
from shared.wire.bounce import BellAck

TOTAL = 9


class Bell:
    """`said`: the next answers."""

    def __init__(self) -> None:
        self.rung: list[list[tuple[int, int]]] = []
        self.said: list[BellAck | None] = []
        self.waits: list[int] = []
        self.due, self.open, self.broken = 0, True, False

    @property
    def silent(self) -> bool:
        return not self.due

    def ring(self, names: bytes, places: list[tuple[int, int]], wait_ms: int) -> bool:
        self.rung.append(places)
        self.waits.append(wait_ms)
        self.due += 1
        return True

    def answers(self, wait_s: float) -> list[BellAck | None]:
        said, self.said = self.said, []
        self.due -= len(said)
        self.open &= None not in said
        return said

    def give_up(self) -> None:
        self.open, self.due, self.broken = False, 0, True


def lying(index: int, length: int = RING_BYTES) -> Lying:
    return Lying(SealedRecord(index, TOTAL, memoryview(bytes(length)), length, 0), Slot(bytearray(), index))


def ack(index: int, waited_us: int = 0) -> BellAck:
    return BellAck(index, 0, False, waited_us)


def check(answer: BellAck, last: Lying) -> None:
    if answer.index != last.record.index:
        raise ProtocolViolation("another record's", code="wrong-acknowledgement")


def ringing(bell: Bell, clock: list[float] | None = None, timeout_s: float = 60.0) -> Ringing:
    now = clock or [0.0]
    grant: Any = Mock(port="holder-north", expires_at=100)
    return Ringing(bell, grant, "gpu-0", lambda: now[0], check, timeout_s)  # type: ignore[arg-type]  # the fake above


def there(bell: Bell) -> Ringing:
    """Ringing at a GPU that has answered once, for record 0."""
    made = ringing(bell)
    made.ring(deque([lying(0)]), more=False)
    bell.said = [ack(0)]
    assert len(made.acknowledged(0.0)) == 1
    bell.rung.clear()
    return made


def places(bell: Bell) -> list[list[int]]:
    return [[offset for offset, _ in ring] for ring in bell.rung]


def test_what_is_little_waits_for_company_while_the_gpu_has_work() -> None:
    bell, ready = Bell(), deque([lying(1, 10)])
    made = there(bell)
    made.ring(ready, more=True)  # it has none: at once
    ready += [lying(2, 10), lying(3, 10)]
    made.ring(ready, more=True)
    assert places(bell) == [[1]]
    ready += [lying(4), lying(TOTAL, 10)]
    made.ring(ready, more=True)
    assert places(bell) == [[1], [2, 3, 4]]  # and the closing record waits alone
    made.ring(ready, more=False)
    assert places(bell) == [[1], [2, 3, 4], [TOTAL]]
    assert not ready


def test_until_the_gpu_is_there_two_rings_are_under_way_and_the_first_one_may_wait() -> None:
    bell = Bell()
    made = ringing(bell)
    for index in range(2):
        made.ring(deque([lying(index)]), more=True)
    left = deque(lying(index) for index in (2, 3, 4))
    made.ring(left, more=True)
    assert (places(bell), bell.waits, len(left)) == ([[0], [1]], [10_000, 0], 3)
    bell.said = [ack(0, waited_us=2_000_000)]
    [first] = made.acknowledged(0.0)
    assert first.waited_s == first.ended - first.started, (
        "no longer than it was under way, whatever the GPU's side says"
    )
    made.ring(left, more=True)
    assert (places(bell), bell.waits) == ([[0], [1], [2, 3, 4]], [10_000, 0, 0])


def test_a_ring_that_was_not_taken_waited_in_vain_and_at_most_as_long_as_it_said() -> None:
    """It is rung again, and its ten seconds were nobody's work."""
    for clock, least, most in (([0.0], 0.02, 5.0), ([99.999], 0.0005, 0.001)):
        bell = Bell()
        made = ringing(bell, clock)
        made.ring(deque([lying(0)]), more=True)
        made.ring(deque([lying(1)]), more=False)
        time.sleep(0.02)
        bell.said = [None, None]
        assert made.acknowledged(0.0) == []
        assert least <= made.in_vain_s <= most
    bell = Bell()
    made = there(bell)
    made.ring(deque([lying(1)]), more=False)
    bell.said = [None]
    made.acknowledged(0.0)
    assert made.in_vain_s == 0.0, "it is at the port: something else was wrong"


def test_nobody_waits_longer_than_the_lease_lasts() -> None:
    bell = Bell()
    ringing(bell, clock=[99.5]).ring(deque([lying(0)]), more=False)
    assert bell.waits == [500]


def test_a_closing_record_goes_with_the_others_where_it_may() -> None:
    bell = Bell()
    ringing(bell).ring(deque([lying(0), lying(TOTAL)]), more=False, closing_apart=False)
    assert places(bell) == [[0, TOTAL]]


def test_an_answer_is_held_to_the_ring_that_it_is_for() -> None:
    bell, ready = Bell(), deque([lying(0), lying(1)])
    made = ringing(bell)
    for _ in range(2):
        made.ring(deque([ready.popleft()]), more=False)
    bell.said = [ack(0)]
    [first] = made.acknowledged(0.0)
    assert [one.record.index for one in first.batch] == [0]
    assert first.ended >= first.started
    bell.said = [ack(7)]
    with pytest.raises(ProtocolViolation, match="another record"):
        made.acknowledged(0.0)


def test_what_was_not_taken_stays_in_order_and_nothing_is_rung_behind_it() -> None:
    bell = Bell()
    made = there(bell)
    for index in range(1, 5):
        made.ring(deque([lying(index)]), more=False)
    bell.said = [ack(1), None, None]
    assert len(made.acknowledged(0.0)) == 1
    left = deque([lying(5)])
    made.ring(left, more=False)
    assert len(left) == 1
    assert not made.over  # one is to be answered yet
    bell.said = [None]
    assert made.acknowledged(0.0) == []
    assert made.over
    assert [one.record.index for one in made.handed_back()] == [2, 3, 4]


def test_a_lease_that_ends_ends_the_ringing() -> None:
    bell, clock = Bell(), [99.0]
    made = ringing(bell, clock)
    made.ring(deque([lying(0)]), more=False)
    clock[0] = 100.0
    left = deque([lying(1)])
    made.ring(left, more=False)
    assert (len(left), made.open, made.over) == (1, False, False)
    bell.said = [ack(0)]
    assert len(made.acknowledged(0.0)) == 1
    assert (made.over, made.handed_back()) == (True, [])


def test_who_is_not_answered_in_time_gives_up_and_few_rings_are_under_way() -> None:
    bell, ready = Bell(), deque(lying(index % TOTAL) for index in range(3 * MAX_UNDER_WAY))
    made = there(bell)
    made._timeout_s = 0.0
    for one in list(ready):
        made.ring(deque([one]), more=False)
    assert len(bell.rung) == MAX_UNDER_WAY
    assert made.acknowledged(0.0) == []
    assert made.over
    assert len(made.handed_back()) == MAX_UNDER_WAY


def test_places_that_the_agent_may_look_at_later_are_not_written_to_again() -> None:
    """Those of rings that it answered, if only by "not taken", are free."""
    for broken in (False, True):
        bell = Bell()
        made = there(bell)
        rung = lying(1)
        place = rung.slot
        made.ring(deque([rung]), more=False)
        if broken:
            bell.give_up()
        else:
            bell.said = [None]
        assert made.acknowledged(0.0) == []
        assert made.handed_back() == [rung]
        assert (rung.slot is place) is not broken
        assert len(rung.slot.memory) == len(place.memory)
