"""A poll tells of many steps at once and of an end at once: no frame for each short step, and none for a last step alone."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from gpu_agent.hardware.bulk import Bulk
from gpu_agent.hardware.commands_work import GATHER_S, poll
from gpu_agent.hardware.compute import Finished, News, StepDone
from gpu_agent.hardware.ledger import Ledger, ReleaseRule, Work
from shared.wire.gpu import EndTour, Poll, Train
from shared.wire.gpu_answers import WorkState

DONE = Finished(1.0, 8, 4, 0.1, True, 0.5)


class Gpu:
    """A state whose engines tell their news at set times, on a timer that only waiting moves; what the clock says is anybody's."""

    def __init__(self, news: Sequence[tuple[float, News]], command: Train | EndTour | None = None) -> None:
        self.now, self._news, self.waits = 0.0, list(news), 0
        self.ledger, self.release, self.clock = (
            Ledger(),
            ReleaseRule(6, 1),
            lambda: 1e9 - self.set_by * (self.waits > 0),
        )
        self.set_by, self.timer = 0.0, lambda: self.now
        train = Train(work="w", visit="v_aaaaaaaaaaaaaaaa", region=1, records=8, first_step=0, steps=4)
        self.ledger.begin(Work(command or train, batch=2, own_data=False))

    @property
    def at(self) -> float:
        """Its clock, to the microsecond."""
        return round(self.now, 6)

    def wait(self, timeout_s: float) -> list[News]:
        self.waits += 1
        until = self.now + timeout_s
        if not self._news or self._news[0][0] > until:
            self.now = until
            return []
        self.now = max(self.now, self._news[0][0])
        return [self._news.pop(0)[1]]

    def take_news(self, news: Sequence[News]) -> None:
        for item in news:
            work = self.ledger.work("w")
            if isinstance(item, StepDone):
                work.losses.append((item.step, item.loss))
            elif isinstance(item, Finished):
                work.end, work.state = item, "done"

    def poll(self, after: int = 0, wait_s: float = 10.0) -> WorkState:
        state: Any = self
        return poll(state, Poll(work="w", after=after, wait_ms=int(1000 * wait_s)), Bulk())


def steps(*at: float) -> list[tuple[float, News]]:
    return [(time, StepDone(number, 2.0)) for number, time in enumerate(at)]


def test_short_steps_are_told_together() -> None:
    gpu = Gpu([*steps(0.01, 0.02, 0.03), (9.0, DONE)])
    state = gpu.poll()
    assert (state.state, len(state.losses), gpu.at) == ("running", 3, GATHER_S)


def test_the_last_step_alone_is_no_answer() -> None:
    """What ends a training, the size of its update, comes some milliseconds behind it."""
    gpu = Gpu([*steps(1.0, 2.0, 3.0, 4.0), (4.004, DONE)])
    assert [gpu.poll(after=told).steps_done for told in (0, 1, 2)] == [1, 2, 3]
    state = gpu.poll(after=3)
    assert (state.state, state.losses, gpu.at) == ("done", [(3, 2.0)], 4.004)


def test_a_training_within_the_time_of_gathering_is_one_answer() -> None:
    gpu = Gpu([*steps(0.01, 0.02, 0.03, 0.04), (0.05, DONE)])
    state = gpu.poll()
    assert (state.state, len(state.losses), gpu.at) == ("done", 4, 0.05)


def test_a_step_longer_than_that_is_told_when_it_is_made() -> None:
    gpu = Gpu([*steps(3.0, 6.0), (99.0, DONE)])
    assert (gpu.poll().steps_done, gpu.at) == (1, 3.0)
    assert (gpu.poll(after=1).steps_done, gpu.at) == (2, 6.0)


@pytest.mark.parametrize("told", [0, 4])
def test_it_answers_when_its_time_is_over(told: int) -> None:
    gpu = Gpu([] if told == 0 else steps(0.01, 0.02, 0.03, 0.04))
    assert (gpu.poll(wait_s=2.0).state, gpu.at) == ("running", 2.0)


def test_one_that_may_not_wait_does_not() -> None:
    gpu = Gpu([(0.0, DONE)])
    assert (gpu.poll(wait_s=0).state, gpu.waits) == ("running", 0)


def test_a_work_without_steps_is_waited_for_to_its_end() -> None:
    gpu = Gpu([(3.0, DONE)], EndTour(work="w", round=1, batches=3, step=True))
    assert (gpu.poll().state, gpu.at) == ("done", 3.0)


@pytest.mark.parametrize("set_by", [3600.0, -600.0], ids=["back", "forward"])
def test_a_clock_that_is_set_meanwhile_makes_no_wait_longer_or_shorter(set_by: float) -> None:
    gpu = Gpu(steps(0.5, 1.0, 1.5, 1.9, 3.0, 4.0))
    gpu.set_by = set_by
    assert (gpu.poll(after=9, wait_s=2.0).state, gpu.at) == ("running", 2.0)
