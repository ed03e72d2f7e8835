"""Giving way to whoever is asked for something: a process that works ahead takes only what processor time nobody else wants. Knows Linux.

SCHED_IDLE (sched(7)) and not a niceness, which nobody without privileges takes back. Where the system refuses, or the operator chose
another policy for the agent, everything works as before.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Final

_USUAL: Final = os.sched_getscheduler(0) == os.SCHED_OTHER
"""Else somebody chose for us, and we could not go back to that."""


def give_way(pid: int = 0) -> None:
    """From now on this process (0) or another of ours runs only on a processor that is idle otherwise."""
    _schedule(pid, os.SCHED_IDLE)


def stand_up(pid: int = 0) -> None:
    """It has its turn like any other again."""
    _schedule(pid, os.SCHED_OTHER)


@contextmanager
def giving_way() -> Iterator[None]:
    """This process gives way inside; a child that is forked there goes on doing so."""
    give_way()
    try:
        yield
    finally:
        stand_up()


def _schedule(pid: int, policy: int) -> None:
    if _USUAL:
        with suppress(OSError):  # gone, or forbidden here
            os.sched_setscheduler(pid, policy, os.sched_param(0))
