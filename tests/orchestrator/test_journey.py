"""The MUX's switches run while other things are done; they keep their order, and none is left behind when a life ends."""

from __future__ import annotations

import asyncio

import pytest

from orchestrator.visits.journey import Journey
from shared.errors import Unavailable


class Platform:
    """A MUX that takes as long as the test likes. `heard`: what it was asked, and what it did."""

    def __init__(self) -> None:
        self.bound, self.heard = asyncio.Event(), list[str]()
        self.failure: Exception | None = None
        self.home_failure: Exception | None = None
        self.let_home = asyncio.Event()
        self.let_home.set()

    async def to_holder(self, holder: str) -> None:
        self.heard.append(f"asked for {holder}")
        await self.bound.wait()
        if self.failure is not None:
            raise self.failure
        self.heard.append(holder)

    async def home(self) -> None:
        self.heard.append("home")
        await self.let_home.wait()
        if self.home_failure is not None:
            raise self.home_failure


def journey(platform: Platform, *, away: bool = True) -> tuple[Journey, asyncio.Lock]:
    lock = asyncio.Lock()
    return Journey(platform, lock, away=away), lock  # type: ignore[arg-type]


async def at_north() -> tuple[Platform, Journey, asyncio.Lock]:
    """A GPU that has arrived at a holder."""
    platform = Platform()
    platform.bound.set()
    way, lock = journey(platform)
    way.begin("north")
    await way.arrived()
    return platform, way, lock


async def settle() -> None:
    for _ in range(5):
        await asyncio.sleep(0)


async def test_a_switch_is_asked_for_at_once_and_waited_for_where_it_is_needed() -> None:
    platform = Platform()
    way, lock = journey(platform)
    way.begin("north")
    await settle()
    assert platform.heard == ["asked for north"]
    assert lock.locked()
    arriving = asyncio.create_task(way.arrived())
    await settle()
    assert not arriving.done()
    platform.bound.set()
    await arriving
    assert lock.locked(), "our port answers nobody until the GPU is home"


async def test_begun_twice_it_is_one_journey() -> None:
    platform = Platform()
    way, _ = journey(platform)
    way.begin("north")
    way.begin("north")
    platform.bound.set()
    await way.arrived()
    assert platform.heard == ["asked for north", "north"]


async def test_the_way_home_waits_for_the_switch_under_way_and_frees_the_port() -> None:
    platform = Platform()
    way, lock = journey(platform)
    way.begin("north")
    returning = asyncio.create_task(way.back())
    await settle()
    assert platform.heard == ["asked for north"], "two switches at once would end wherever the slower one leads"
    platform.bound.set()
    await returning
    assert platform.heard == ["asked for north", "north", "home"]
    assert not lock.locked()
    way.begin("south")
    await way.arrived()
    assert platform.heard[-1] == "south"


async def test_the_way_home_is_begun_before_anybody_waits_for_it_and_is_one() -> None:
    platform, way, lock = await at_north()
    platform.let_home.clear()
    way.turn_back()
    await asyncio.sleep(0)
    assert platform.heard[-1] == "home", "asked within one turn of the loop"
    way.turn_back()
    returning = asyncio.create_task(way.back())
    await settle()
    assert (platform.heard.count("home"), returning.done(), lock.locked()) == (1, False, True)
    platform.let_home.set()
    await returning
    assert not lock.locked()
    way.begin("south")
    await way.arrived()
    await way.back()
    assert platform.heard.count("home") == 2, "another journey has its own way home"


async def test_a_way_home_that_failed_is_heard_of_and_asked_for_again() -> None:
    platform, way, lock = await at_north()
    platform.home_failure = Unavailable("the platform is gone")
    way.turn_back()
    with pytest.raises(Unavailable, match="the platform is gone"):
        await way.back()
    platform.home_failure = None
    await way.back()
    assert (platform.heard.count("home"), lock.locked()) == (2, False)


async def test_a_switch_that_failed_is_heard_of_by_who_needs_it_and_holds_nothing() -> None:
    platform = Platform()
    platform.failure = Unavailable("the platform is gone")
    platform.bound.set()
    way, lock = journey(platform)
    way.begin("north")
    with pytest.raises(Unavailable, match="the platform is gone"):
        await way.arrived()
    assert not lock.locked()
    await way.back()
    assert platform.heard[-1] == "home"
    assert not lock.locked()


async def test_who_stops_waiting_does_not_take_the_switch_along() -> None:
    platform = Platform()
    way, _ = journey(platform)
    way.begin("north")
    arriving = asyncio.create_task(way.arrived())
    await settle()
    arriving.cancel()
    with pytest.raises(asyncio.CancelledError):
        await arriving
    platform.bound.set()
    await way.arrived()
    assert platform.heard[-1] == "north"


async def test_a_life_that_ends_leaves_no_switch_under_way() -> None:
    platform = Platform()
    way, lock = journey(platform)
    way.begin("north")
    await settle()
    way.give_up()
    await settle()
    assert len(asyncio.all_tasks()) == 1
    assert not lock.locked()


async def test_a_life_that_ends_leaves_no_way_home_under_way() -> None:
    platform = Platform()
    platform.let_home.clear()
    way, _ = journey(platform)
    way.turn_back()
    await settle()
    assert (platform.heard, len(asyncio.all_tasks())) == (["home"], 2)
    way.give_up()
    await settle()
    assert len(asyncio.all_tasks()) == 1


async def test_a_life_that_ends_while_the_gpu_is_away_answers_who_waits_at_our_port() -> None:
    """It had been held for ever: each holder that waited for evidence was never answered."""
    _, way, lock = await at_north()
    waiting = asyncio.create_task(lock.acquire())
    await settle()
    assert not waiting.done()
    way.give_up()
    await settle()
    assert waiting.done()
    way.give_up()
    assert lock.locked(), "it is another's now"


async def test_a_life_that_ends_leaves_no_switch_that_its_way_home_waits_for() -> None:
    platform = Platform()
    way, lock = journey(platform)
    way.begin("north")
    way.turn_back()
    await settle()
    way.give_up()
    await settle()
    assert len(asyncio.all_tasks()) == 1
    platform.bound.set()
    assert (platform.heard, lock.locked()) == (["asked for north"], False)


async def test_a_life_that_ends_while_the_gpu_is_sent_again_lets_go_of_our_port_once() -> None:
    platform, way, lock = await at_north()
    platform.bound.clear()
    way.found("orchestrator")
    await settle()
    way.give_up()
    await settle()
    assert (len(asyncio.all_tasks()), lock.locked()) == (1, False)


async def test_switched_away_from_its_holder_by_somebody_it_is_sent_there_again() -> None:
    platform, way, lock = await at_north()
    way.found("holder-north")
    way.found("orchestrator")
    await way.arrived()
    assert platform.heard == ["asked for north", "north"] * 2
    way.found(None)
    await way.back()
    assert platform.heard == [*["asked for north", "north"] * 3, "home"], "behind the switch that is under way"
    assert not lock.locked()


async def test_a_gpu_that_is_on_its_way_or_home_is_not_sent_again_wherever_it_was_seen() -> None:
    platform = Platform()
    way, lock = journey(platform)
    way.found("orchestrator")
    way.begin("north")
    await settle()
    way.found("orchestrator")
    platform.bound.set()
    await way.arrived()
    platform.let_home.clear()
    way.turn_back()
    way.found("orchestrator")
    platform.let_home.set()
    await way.back()
    way.found("holder-north")
    await settle()
    assert platform.heard == ["asked for north", "north", "home"]
    platform.failure = Unavailable("the platform is gone")
    way.begin("north")
    with pytest.raises(Unavailable):
        await way.arrived()
    way.found("orchestrator")
    await settle()
    assert platform.heard[3:] == ["asked for north"], "whoever waited has heard of it: the life is over"
    assert not lock.locked()


async def test_a_gpu_that_cannot_be_sent_again_now_is_sent_at_the_next_look_and_comes_home_in_any_case() -> None:
    platform, way, lock = await at_north()
    platform.failure = Unavailable("the platform is gone")
    way.found("orchestrator")
    await way.arrived()
    way.found("orchestrator")
    await way.arrived()
    assert platform.heard[2:] == ["asked for north"] * 2
    await way.back()
    assert (platform.heard[-1], lock.locked()) == ("home", False)


async def test_where_the_gpu_does_not_travel_nobody_is_asked() -> None:
    platform = Platform()
    way, lock = journey(platform, away=False)
    way.begin("north")
    await way.arrived()
    way.turn_back()
    await way.back()
    assert platform.heard == []
    assert not lock.locked()
