"""Deaths among the GPU's compute processes, at a launch: of the worker that does it, or of the parent of all. Knows no session."""

from __future__ import annotations

import os
import signal
import time
from contextlib import suppress
from pathlib import Path
from typing import Any, Literal

import pytest

from gpu_agent.compute.process import ComputeProcess
from gpu_agent.hardware.compute import Failed

Victim = Literal["worker", "parent"]


class Deaths:
    """Of the `nth` launch of a kind, and of those after it till `times` of them have failed; `failed` counts those."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, victim: Victim, kind: str, nth: int, times: int = 1) -> None:
        self.failed = 0
        self._victim, self._kind, self._left, self._times = victim, kind, nth, times
        send = ComputeProcess._send

        def sent(compute: ComputeProcess, message: dict[str, Any]) -> None:
            if self._due(message):
                self._die(compute, lambda: send(compute, message))
            else:
                send(compute, message)

        monkeypatch.setattr(ComputeProcess, "_send", sent)

    def _due(self, message: dict[str, Any]) -> bool:
        if message["op"] != "run" or message["kind"] != self._kind or self.failed == self._times:
            return False
        self._left -= 1
        return self._left <= 0

    def _die(self, compute: ComputeProcess, launch: Any) -> None:
        """The worker that waits is stopped before it has the launch, or it could be done with it before it is killed."""
        stopped, parent = _waiting(compute), compute.pid or 0
        _signal(stopped, signal.SIGSTOP)
        launch()
        while compute._active:
            victims = _workers(compute) if self._victim == "worker" else [parent]
            _signal([pid for pid in victims if pid], signal.SIGKILL)
            if self._victim == "parent" and _dead(parent):
                # Stopped before it could ask to die with its parent it would stand there for ever, and hold the link open.
                _signal(stopped, signal.SIGCONT)
            time.sleep(0.001)
        self.failed += any(isinstance(news, Failed) for news in compute._news)


def _workers(compute: ComputeProcess) -> list[int]:
    with suppress(OSError):
        return [int(pid) for pid in Path(f"/proc/{compute.pid}/task/{compute.pid}/children").read_text().split()]
    return []


def _waiting(compute: ComputeProcess) -> list[int]:
    """The workers, as soon as there is one; if there is none after all, the launch gets one of its own."""
    for _ in range(200):
        if found := _workers(compute):
            return found
        time.sleep(0.01)
    return []


def _dead(pid: int) -> bool:
    """Whether it runs no more; until its own parent hears of it, it is listed yet."""
    with suppress(OSError):
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z"
    return True


def _signal(pids: list[int], number: int) -> None:
    for pid in pids:
        with suppress(ProcessLookupError):
            os.kill(pid, number)
