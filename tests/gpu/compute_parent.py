"""A compute parent that runs here, with what it forks standing still, and the agent's end of it. Holds no test."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import suppress
from types import SimpleNamespace
from typing import Any, cast

import pytest

from gpu_agent.compute import __main__ as parents
from gpu_agent.compute import messages, places
from gpu_agent.compute.__main__ import Parent
from gpu_agent.compute.planned import by_default
from gpu_agent.hardware.shared_map import SharedMap
from gpu_agent.workload.loader import LoadedProgram
from shared.quota import usable_cores
from tests.gpu.gpu_world import OPTIONS, manifest

DIGEST = "ab" * 32
DEVICE = "cpu/4096/4096/3"


@pytest.fixture
def held() -> Iterator[list[int]]:
    """The ends that workers read from, held open in their place."""
    ends: list[int] = []
    yield ends
    for end in ends:
        os.close(end)


@pytest.fixture
def forks(monkeypatch: pytest.MonkeyPatch, held: list[int]) -> Iterator[list[int]]:
    """What a parent forks, as process ids; they wait and do nothing."""
    made: list[subprocess.Popen[bytes]] = []
    pids: list[int] = []
    pipe = os.pipe

    def held_pipe() -> tuple[int, int]:
        ends = pipe()
        held.append(os.dup(ends[0]))  # as a worker would hold it
        return ends

    def fork() -> int:
        made.append(subprocess.Popen(["sleep", "600"]))
        pids.append(made[-1].pid)
        return pids[-1]

    monkeypatch.setattr(parents.os, "fork", fork)
    monkeypatch.setattr(parents.os, "pipe", held_pipe)
    yield pids
    for one in made:
        one.kill()
        one.wait()


@pytest.fixture
def warm(monkeypatch: pytest.MonkeyPatch, forks: list[int]) -> Iterator[list[int]]:
    """Where each of those forked for a device would say that it waits."""
    ends: list[int] = []
    fork = parents.os.fork

    def noted() -> int:
        ends.append(os.dup(sys._getframe(1).f_locals["says_ready"]))  # as it would have it
        return fork()

    monkeypatch.setattr(parents.os, "fork", noted)
    yield ends
    for end in ends:
        os.close(end)


class Agent:
    """The agent's end of a parent that runs here, one message at a time."""

    def __init__(self, place: str = places.HOST) -> None:
        self.link, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self.parent = Parent(SharedMap(-1, 4096), theirs, place)
        self.parent._programs[DIGEST] = cast("LoadedProgram", SimpleNamespace(manifest=manifest()))
        self.parent._planned[DIGEST] = by_default(manifest())
        self.waited: list[float] = []

    def say(self, **message: Any) -> None:
        self.link.send(messages.pack(message))
        assert self.parent._obey()

    def launch(self, *, beside: int = 0, threads: int | None = None, own: bool = False) -> None:
        """`threads`: every core's unless said. `own`: as `Launch` has it."""
        every_core = OPTIONS.model_copy(update={"threads": threads or usable_cores()}).model_dump(mode="json")
        self.say(
            op="run", launch=1, code={"address": 0, "length": 1}, code_digest=DIGEST, options=every_core, accumulate=False,
            beside=beside, room=0, own=own,
        )  # fmt: skip

    def heard(self) -> list[dict[str, Any]]:
        """All that the parent has said so far."""
        self.link.setblocking(False)
        told = []
        with suppress(BlockingIOError):
            while data := self.link.recv(messages.MAX_MESSAGE):
                told.append(messages.unpack(data))
        self.waited = [one.pop("waited") for one in told if "waited" in one]
        return told

    def worker_dies(self, number: int = signal.SIGKILL) -> None:
        running = self.parent._running
        assert running is not None
        os.kill(running.pid, number)
        self.parent._buried(running)
        self.parent._prepare_later(running.code_digest)
