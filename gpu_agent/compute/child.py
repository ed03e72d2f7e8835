"""A worker as its parent sees it: what it was forked for, how it is ended, what its death says. Knows no message, and nothing that it does.

A death by a signal is of one of two kinds. What only somebody outside sends ends a launch that can be repeated. By all else a program ends
its own process (it divides, or reads where nothing is), and its author can have that depend on what records say: then no more is told
than of every program that failed.
"""

from __future__ import annotations

import os
import signal
from dataclasses import dataclass
from typing import Final

from gpu_agent.compute.worker import FAILED

_FROM_OUTSIDE: Final = frozenset(
    {signal.SIGKILL, signal.SIGTERM, signal.SIGHUP, signal.SIGINT, signal.SIGQUIT, signal.SIGPWR}
)
"""Sent by the kernel when memory runs out, by what comes before it in that, by an operator, by a machine that stops. SIGXCPU is none of
them: where processor time is limited, it is the program that spends it, and how much it spends may hang on values."""


@dataclass
class Child:
    """A forked process waiting for, or doing, one launch of the program it was forked with. `ready`: what is read here once it waits, -1
    where nobody asks. `own`: as its launch has it."""

    pid: int
    pidfd: int
    control: int
    ready: int
    code_digest: str
    launch: int | None = None
    own: bool = False
    warm: bool = False

    def let_go(self) -> None:
        """Close what is left here of one that is dead."""
        for fd in (self.pidfd, self.control, self.ready):
            if fd >= 0:
                os.close(fd)

    def kill(self) -> None:
        """End it; returns when it is dead."""
        signal.pidfd_send_signal(self.pidfd, signal.SIGKILL)
        os.waitpid(self.pid, 0)
        self.let_go()

    def died_of(self, number: int) -> tuple[str, str]:
        """Code and detail of its death by that signal, as they may be told."""
        if number in _FROM_OUTSIDE:
            return "compute-killed", "the compute process was killed; most often for lack of memory"
        if self.own:
            return "program-failed", f"The program ended the compute process (by signal {number})"
        return "program-failed", FAILED
