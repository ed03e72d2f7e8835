"""When the next worker is forked: with the launch, and ahead of it where none comes soon or, on a device, the agent says so."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from gpu_agent.compute import __main__ as parents
from gpu_agent.compute import messages, places
from gpu_agent.compute.__main__ import Parent
from gpu_agent.compute.planned import by_default
from gpu_agent.hardware.shared_map import SharedMap
from gpu_agent.workload.loader import LoadedProgram
from shared.wire import gpu
from tests.gpu.gpu_training import DATA, waiting_workers
from tests.gpu.gpu_world import OPTIONS, World, manifest

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

    def launch(self, *, beside: int = 0) -> None:
        every_core = OPTIONS.model_copy(update={"threads": len(os.sched_getaffinity(0))}).model_dump(mode="json")
        self.say(
            op="run", launch=1, code={"address": 0, "length": 1}, code_digest=DIGEST, options=every_core, accumulate=False,
            beside=beside,
            room=0,
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

    def worker_dies(self) -> None:
        running = self.parent._running
        assert running is not None
        os.kill(running.pid, signal.SIGKILL)
        self.parent._buried(running)
        self.parent._prepare_later(running.code_digest)


@pytest.mark.parametrize("small", [True, False])
def test_a_launch_that_ended_is_followed_by_a_fork_where_no_other_one_comes_soon(
    forks: list[int], monkeypatch: pytest.MonkeyPatch, small: bool
) -> None:
    monkeypatch.setattr(parents, "_SOON_S", 10.0)
    monkeypatch.setattr(parents, "_LATER_S", 20.0)
    if not small:
        monkeypatch.setattr(places.HostPlace, "warm_up_bytes", 4096)
    agent = Agent()
    agent.launch()
    agent.worker_dies()
    left = agent.parent._left()
    assert left is not None
    assert (len(forks), left <= 10.0) == (1, small)
    monkeypatch.setattr(parents, "_SOON_S" if small else "_LATER_S", 0.0)
    agent.parent._prepare_later(DIGEST)
    agent.parent._when_due()
    assert (len(forks), agent.parent._left()) == (2, None)
    agent.launch()
    assert len(forks) == 2, "the launch found what was prepared"


def test_what_the_agent_asks_for_is_forked_once(forks: list[int]) -> None:
    agent = Agent(DEVICE)
    agent.say(op="prepare", code_digest=DIGEST)
    agent.say(op="prepare", code_digest=DIGEST)
    agent.launch()
    assert len(forks) == 1, "the launch found what was prepared"


@pytest.mark.parametrize("place", [places.HOST, DEVICE])
def test_who_is_forked_for_a_launch_gets_ready_on_a_device_only(
    monkeypatch: pytest.MonkeyPatch, forks: list[int], place: str
) -> None:
    agent, waits = Agent(place), list[bool]()
    fork = parents.os.fork

    def noted() -> int:
        waits.append(sys._getframe(1).f_locals["waits"])
        return fork()

    monkeypatch.setattr(parents.os, "fork", noted)
    agent.launch()
    agent.parent._prepare_spare(DIGEST)
    assert waits == [place == DEVICE, True]
    assert len(forks) == 2


def test_a_worker_killed_while_it_waited_fails_the_launch_and_not_the_parent(forks: list[int], held: list[int]) -> None:
    agent = Agent()
    agent.parent._prepare_spare(DIGEST)
    os.kill(forks[0], signal.SIGKILL)
    os.close(held.pop(0))  # the first: the later ones are of who made the process
    agent.launch()  # before the parent has heard of the death
    agent.worker_dies()
    told = [messages.unpack(agent.link.recv(messages.MAX_MESSAGE)) for _ in range(2)]
    assert [(one["op"], one["launch"]) for one in told] == [("failed", 1), ("destroyed", 1)]
    assert told[0]["code"] == "compute-killed"
    agent.launch()
    assert len(forks) == 2, "the next launch has another"


def test_a_launch_that_finds_no_worker_makes_one(forks: list[int]) -> None:
    agent = Agent()
    for number in (1, 2, 3):
        agent.launch()
        assert (len(forks), agent.parent._left()) == (number, None)
        agent.say(op="destroy", keep=True)
        assert (len(forks), agent.parent._left() is None) == (number, False)


def test_on_a_device_nothing_is_forked_before_the_agent_says_so(forks: list[int]) -> None:
    agent = Agent(DEVICE)
    agent.launch()
    agent.say(op="destroy", keep=True)
    assert (len(forks), agent.parent._left()) == (1, None)
    assert agent.heard() == [{"op": "destroyed", "launch": 1}, {"op": "quiet", "waiting": 0}]


def test_on_a_device_the_next_worker_is_forked_while_one_trains_and_outlives_it(
    forks: list[int], warm: list[int]
) -> None:
    agent = Agent(DEVICE)
    agent.launch(beside=1)
    assert len(forks) == 2
    os.write(warm[1], b"1")
    agent.say(op="rest")
    agent.say(op="destroy", keep=True)
    assert [Path(f"/proc/{pid}").exists() for pid in forks] == [False, True], "the one that trained died"
    agent.launch()
    assert len(forks) == 2, "the launch found the one that waited"
    told = [one for one in agent.heard() if one["op"] != "destroyed"]
    assert told == [{"op": "resting", "waiting": 1}, {"op": "quiet", "waiting": 1}]


def test_on_a_device_several_are_forked_beside_one_launch_and_used_up_by_the_next(
    forks: list[int], warm: list[int]
) -> None:
    agent = Agent(DEVICE)
    agent.launch(beside=3)
    assert len(forks) == 4
    for end in warm[1:]:
        os.write(end, b"1")
    for left in (3, 2, 1):
        agent.say(op="destroy", keep=True)
        assert agent.heard()[-1] == {"op": "quiet", "waiting": left}
        agent.launch(beside=left - 1)
        running = agent.parent._running
        assert running is not None
        assert running.pid == forks[4 - left], "the oldest first"
    assert len(forks) == 4
    agent.launch(beside=2)
    assert len(forks) == 7, "one for the launch, for none waited, and two beside it"


def test_on_a_device_who_is_not_ready_in_time_is_dropped_and_the_others_stay(
    forks: list[int], warm: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(parents, "_WARM_DEADLINE_S", 0.1)
    agent = Agent(DEVICE)
    agent.launch(beside=3)
    for end in (warm[1], warm[3]):
        os.write(end, b"1")
    agent.say(op="destroy", keep=True)
    assert agent.heard()[-1] == {"op": "quiet", "waiting": 2}
    assert agent.waited[0] >= 0.1
    assert [Path(f"/proc/{pid}").exists() for pid in forks] == [False, True, False, True]
    os.kill(forks[1], signal.SIGKILL)
    agent.parent._buried(agent.parent._spares[0])
    agent.say(op="rest")
    assert agent.heard() == [{"op": "resting", "waiting": 1}]
    agent.say(op="drop")
    assert [Path(f"/proc/{pid}").exists() for pid in forks] == [False] * 4


def test_workers_of_another_program_make_way_for_those_of_the_next(forks: list[int], warm: list[int]) -> None:
    agent, other = Agent(DEVICE), "cd" * 32
    agent.parent._programs[other], agent.parent._planned[other] = agent.parent._programs[DIGEST], by_default(manifest())
    agent.launch(beside=2)
    for end in warm[1:]:
        os.write(end, b"1")
    agent.say(op="destroy", keep=True)
    agent.say(op="prepare", code_digest=other)
    assert [Path(f"/proc/{pid}").exists() for pid in forks] == [False, False, False, True]


@pytest.mark.parametrize("why", ["not to be kept", "never warm", "dead"])
def test_on_a_device_who_may_hold_what_a_training_gave_back_dies_with_it(
    forks: list[int], warm: list[int], monkeypatch: pytest.MonkeyPatch, why: str
) -> None:
    monkeypatch.setattr(parents, "_WARM_DEADLINE_S", 0.05)
    agent = Agent(DEVICE)
    agent.launch(beside=1)
    if why == "not to be kept":
        os.write(warm[1], b"1")
    if why == "dead":
        os.kill(forks[1], signal.SIGKILL)
    agent.say(op="destroy", keep=why != "not to be kept")
    assert agent.heard()[-1] == {"op": "quiet", "waiting": 0}
    assert [Path(f"/proc/{pid}").exists() for pid in forks] == [False, False]


def trained(world: World) -> gpu.Scrub:
    options = OPTIONS.model_copy(update={"threads": len(os.sched_getaffinity(0))})
    world.set_up(options=options)
    holder = world.visit(DATA)
    assert world.train(holder, "w1", 4, 0).state == "done"
    return gpu.Scrub(region=holder.grant.region)


def test_a_worker_waits_soon_after_a_launch(world: World) -> None:
    world.run(gpu.Commit(work="w1"), trained(world))
    waiting_workers(world)


def test_out_of_memory_the_kernel_takes_a_worker_before_its_parent(world: World) -> None:
    world.set_up()
    (worker,) = waiting_workers(world)

    def worth(pid: int | None) -> int:
        return int(Path(f"/proc/{pid}/oom_score_adj").read_text())

    for _ in range(500):  # it says so soon after its fork
        if worth(worker) == 800:
            break
        time.sleep(0.01)
    assert worth(worker) == 800 > worth(world.compute.pid)
