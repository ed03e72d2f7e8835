"""How long a process keeps a core that others want: its slice (EEVDF, Linux 6.12 and later). Knows no launch.

Who wakes with a shorter slice interrupts who runs with a longer one, whatever their priorities, and whichever groups of processes they
belong to. So a process that nobody waits for asks for a long one, and one that works for a moment while everybody waits for a short one.
Neither has more or less of the cores, and unlike with a lower priority it may ask for the usual one again without privileges (ADR 43).
"""

from __future__ import annotations

import ctypes
import os
import platform
import struct
from typing import Final

LONG_NS: Final = 100_000_000
SHORT_NS: Final = 100_000
"""The longest and the shortest slice that the kernel gives (`__setparam_fair`)."""
_USUAL: Final = 0
_SCHED_SETATTR: Final = {"x86_64": 314, "aarch64": 274}
"""The call's number (Linux, `syscalls(2)`) for a process of 64 bits: a 32-bit one on the same machine has other numbers."""
_WORD_BYTES: Final = struct.calcsize("P")
_ATTR: Final = struct.Struct("=IIQiIQQQ")
"""sched_attr of its first version, sched_setattr(2): size, policy, flags, nice, priority, runtime (the slice), deadline, period."""
_TASKS: Final = "/proc/self/task"
_syscall = ctypes.CDLL(None).syscall


def give_way() -> bool:
    """From now on whoever wakes goes first, where all of this process's threads are of the usual policy; whether the kernel heard.

    Threads that begin later inherit it. An older kernel hears, and does nothing.
    """
    return _ask(LONG_NS)


def go_first() -> bool:
    """From now on this process goes before whoever has run for a moment; else as `give_way`. For who never works for long at a time."""
    return _ask(SHORT_NS)


def take_turns() -> bool:
    """As before `give_way` and `go_first`, for all threads that are there; whether the kernel heard."""
    return _ask(_USUAL)


def _ask(slice_ns: int) -> bool:
    """A hint fails nobody: whatever the system refuses or does not know, the process goes on as it was."""
    number = _SCHED_SETATTR.get(platform.machine()) if _WORD_BYTES == 8 else None
    if number is None:
        return False
    try:
        return all(_told(number, int(task), slice_ns) for task in os.listdir(_TASKS))
    except OSError:  # a thread that has just ended, a system without /proc
        return False


def _told(number: int, thread: int, slice_ns: int) -> bool:
    if os.sched_getscheduler(thread) != os.SCHED_OTHER:  # an operator's choice
        return False
    nice = os.getpriority(os.PRIO_PROCESS, thread)
    attributes = _ATTR.pack(_ATTR.size, os.SCHED_OTHER, 0, nice, 0, slice_ns, 0, 0)
    called = _syscall(ctypes.c_long(number), ctypes.c_int(thread), attributes, ctypes.c_uint(0))
    return bool(called == 0)
