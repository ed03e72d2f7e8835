"""SIGTERM and SIGHUP end a command as Ctrl-C does: what it began is cancelled, stopped and removed first. Knows no command.

`timeout`, service managers and CI send SIGTERM, a terminal that closes SIGHUP; Python would end at once and leave folders, processes and
sessions behind.
"""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import wraps
from types import FrameType
from typing import TYPE_CHECKING, Any, ParamSpec, TypeVar

if TYPE_CHECKING:
    from collections.abc import Coroutine

P = ParamSpec("P")
T = TypeVar("T")
STOPPING = (signal.SIGTERM, signal.SIGHUP)


def stopped_in_order(run: Callable[P, int]) -> Callable[P, int]:
    """Around a command whose value is its exit code: that of one which was stopped is a shell's, 128 and the signal's number."""

    @wraps(run)
    def wrapped(*given: P.args, **named: P.kwargs) -> int:
        if threading.current_thread() is not threading.main_thread():  # only there may signals be handled
            return run(*given, **named)
        came: list[int] = []

        def stop(number: int, frame: FrameType | None) -> None:
            came.append(number)
            if len(came) > 1:  # `timeout` sends it to the process and to its group: once is meant
                return
            as_interrupted = signal.getsignal(signal.SIGINT)
            if callable(as_interrupted):  # that of a running event loop cancels what runs in it
                as_interrupted(signal.SIGINT, frame)
            else:  # a background job's: Ctrl-C is not for it, the other signals are
                raise KeyboardInterrupt

        before = {number: signal.getsignal(number) for number in STOPPING}
        ours = [number for number in STOPPING if before[number] is signal.SIG_DFL]  # `nohup` has SIGHUP ignored
        for number in ours:
            signal.signal(number, stop)
        try:
            code = run(*given, **named)
        finally:
            for number in ours:
                signal.signal(number, before[number])
        return 128 + came[0] if came and code else code

    return wrapped


def run_in_order(doing: Coroutine[Any, Any, T]) -> T:
    """`asyncio.run` of what stops services of its own, or a session, when it is stopped: an impatient second Ctrl-C does not break that
    off, and leaves none running."""
    import asyncio  # not for `gput --help`

    async def once() -> T:
        with _only_the_first():
            return await doing

    return asyncio.run(once())


@contextmanager
def _only_the_first() -> Iterator[None]:
    """In a running event loop: SIGINT cancels what runs in it, as asyncio has it; a further one, which would leave the loop, is nothing."""
    cancels = signal.getsignal(signal.SIGINT)
    if threading.current_thread() is not threading.main_thread() or not callable(cancels):
        yield
        return
    came: list[int] = []

    def stop(number: int, frame: FrameType | None) -> None:
        came.append(number)
        if len(came) == 1:
            cancels(number, frame)

    signal.signal(signal.SIGINT, stop)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, cancels)
