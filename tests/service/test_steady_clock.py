"""A clock is believed about long ago once it has gone evenly for hours, however far it stands from where it stood."""

from __future__ import annotations

import io
import math

import pytest

from shared.service.logging import configure_logging
from shared.service.steady_clock import SETTLE_S, STEP_S, SteadyClock, uptime

KEEP_S, YEAR_S = 90 * 86_400.0, 365 * 86_400.0


class Times:
    """Of one machine: what its clock says, and how long it has run."""

    def __init__(self) -> None:
        self.now, self.uptime = 1.0e9, 50.0
        self.steady = SteadyClock(lambda: self.now, lambda: self.uptime)

    def before(self, later: float = 0.0, *, step: float = 0.0, keep_s: float = KEEP_S) -> float:
        self.uptime += later
        self.now += later + step
        return self.steady.before(keep_s)


def test_nothing_is_old_in_the_first_hours_of_a_process() -> None:
    times = Times()
    assert times.before() == times.before(SETTLE_S - 1) == -math.inf
    assert times.before(1) == times.now - KEEP_S


@pytest.mark.parametrize("step", [YEAR_S, -YEAR_S, STEP_S + 1])
def test_nor_in_the_hours_after_the_clock_was_set_which_is_said_once(step: float) -> None:
    log = io.StringIO()
    configure_logging("warning", "json", log)
    times = Times()
    times.before(SETTLE_S)
    assert times.before(600, step=step) == times.before(SETTLE_S - 1) == -math.inf
    assert times.before(1) == times.now - KEEP_S
    configure_logging("warning", "json")
    assert log.getvalue().count("the clock was set") == 1


def test_one_that_was_put_right_again_has_taken_nothing_and_waits_again() -> None:
    times = Times()
    times.before(SETTLE_S)
    assert times.before(600, step=YEAR_S) == times.before(600, step=-YEAR_S) == -math.inf


def test_drift_and_slewing_are_no_step() -> None:
    times = Times()
    for _ in range(100):
        times.before(600, step=STEP_S / 2)
    assert times.before() == times.now - KEEP_S


@pytest.mark.parametrize("keep_s", [0.0, 10.0, math.inf])
def test_what_is_kept_for_less_waits_for_no_longer_and_what_is_kept_for_ever_stays(keep_s: float) -> None:
    times = Times()
    assert times.before(min(keep_s, SETTLE_S), keep_s=keep_s) == times.now - keep_s


def test_the_machines_own_timer_goes_forward() -> None:
    assert 0 < uptime() <= uptime()
