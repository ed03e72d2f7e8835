"""Frames that wait for a GPU's thread: one after another, no more than may, and none that was let go of or went away holds up the rest."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import cast

import pytest

from gpu_agent import line
from gpu_agent.compute.process import ComputeProcess
from gpu_agent.hardware.device import Device
from gpu_agent.hardware.mux import Mux
from gpu_agent.line import Line
from gpu_agent.unit import GpuUnit
from shared.errors import Unavailable
from shared.names import ORCHESTRATOR_PORT


class Polled:
    """A thread that is at a poll until it is told to go on, and what was done on it."""

    def __init__(self) -> None:
        self.begun, self.over = threading.Event(), threading.Event()
        self.done: list[int] = []

    def poll(self) -> None:
        self.begun.set()
        assert self.over.wait(60)

    def frame(self, number: int) -> int:
        self.done.append(number)
        return number


@pytest.fixture
def polled() -> Iterator[Polled]:
    made = Polled()
    yield made
    made.over.set()


async def _settled() -> None:
    for _ in range(5):
        await asyncio.sleep(0)


async def test_of_too_many_whoever_has_waited_longest_is_let_go_of(
    polled: Polled, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By the unit, as its ports reach it: anybody may send frames while the orchestrator's poll waits on the thread."""
    monkeypatch.setattr(line, "MAX_WAITING", 2)
    unit = GpuUnit(cast(Device, None), cast(ComputeProcess, None), Mux((ORCHESTRATOR_PORT,)))
    unit.mux.bind(ORCHESTRATOR_PORT)
    poll = asyncio.create_task(unit.act("commands", ORCHESTRATOR_PORT, polled.poll))
    await asyncio.to_thread(polled.begun.wait, 60)

    async def sent(number: int) -> int:
        return await unit.act("commands", ORCHESTRATOR_PORT, lambda: polled.frame(number))

    frames = [asyncio.create_task(sent(number)) for number in range(4)]
    async with asyncio.timeout(60):
        for one in frames[:2]:
            with pytest.raises(Unavailable) as refused:
                await one
            assert refused.value.code == "too-many-frames"
        assert unit._threads["commands"]._work_queue.empty(), "nothing is left behind that would hold its memory"
        polled.over.set()
        await poll
        assert (await asyncio.gather(*frames[2:]), polled.done) == ([2, 3], [2, 3])


async def test_whoever_goes_away_holds_up_nobody(polled: Polled) -> None:
    with ThreadPoolExecutor(1) as thread:
        waiting = Line(thread)
        poll = asyncio.create_task(waiting.act(polled.poll))
        await asyncio.to_thread(polled.begun.wait, 60)
        frames = [asyncio.create_task(waiting.act(lambda number=number: polled.frame(number))) for number in range(3)]
        await _settled()
        frames[0].cancel()
        polled.over.set()
        async with asyncio.timeout(60):
            await poll  # the next one's turn has come, and it has not begun
            frames[1].cancel()
            assert await frames[2] == 2
            assert await waiting.act(lambda: polled.frame(3)) == 3
        assert polled.done[-2:] == [2, 3]


async def test_who_was_let_go_of_and_then_goes_away_hands_on_no_turn(
    polled: Polled, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(line, "MAX_WAITING", 1)
    with ThreadPoolExecutor(1) as thread:
        queue = Line(thread)
        poll = asyncio.create_task(queue.act(polled.poll))
        await asyncio.to_thread(polled.begun.wait, 60)
        first = asyncio.create_task(queue.act(lambda: polled.frame(1)))
        await _settled()
        second = asyncio.create_task(queue.act(lambda: polled.frame(2)))
        await asyncio.sleep(0)  # the second is in the line, and the first was let go of
        first.cancel()
        await _settled()
        waiting = thread._work_queue.qsize()
        polled.over.set()
        await asyncio.gather(poll, first, second, return_exceptions=True)
    assert waiting == 0, "the thread is still at its poll"
    assert polled.done == [2]
