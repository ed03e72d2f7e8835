"""When the next worker is forked: with the launch, and ahead of it where none comes soon or, on a device, the agent says so."""

from __future__ import annotations

import os
import signal
import sys
import time
from pathlib import Path

import pytest

from gpu_agent.compute import __main__ as parents
from gpu_agent.compute import messages, places
from gpu_agent.compute.worker import public_failure
from shared.errors import InvalidProgram
from shared.quota import usable_cores
from shared.wire import gpu
from shared.wire.gpu_answers import COMPUTE_OUTAGES
from tests.gpu.compute_parent import DEVICE, DIGEST, Agent
from tests.gpu.gpu_training import DATA, waiting_workers
from tests.gpu.gpu_world import OPTIONS, World


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


def _told_of_a_death(number: int, *, own: bool = False) -> tuple[str, str]:
    """Code and detail that the agent hears."""
    agent = Agent()
    agent.launch(own=own)
    agent.worker_dies(number)
    failed, destroyed = agent.heard()
    assert (failed["op"], failed["part"], destroyed["op"]) == ("failed", None, "destroyed")
    return failed["code"], failed["detail"]


@pytest.mark.parametrize("number", [signal.SIGFPE, signal.SIGSEGV, signal.SIGABRT, signal.SIGXCPU])
def test_a_worker_that_its_program_ends_is_told_of_as_of_a_program_that_failed(forks: list[int], number: int) -> None:
    """Not by what it died: its author can have that depend on what records say."""
    said = public_failure(InvalidProgram("node 3 (aten.div.Tensor_mode): SIGFPE"), own=False)
    assert (*_told_of_a_death(number), None) == said


@pytest.mark.usefixtures("hanging_up")
@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM, signal.SIGHUP, signal.SIGINT, signal.SIGPWR])
@pytest.mark.parametrize("own", [False, True])
def test_a_worker_that_somebody_outside_ends_is_no_verdict_on_the_records(
    forks: list[int], number: int, own: bool
) -> None:
    """What frees memory before the kernel has to sends SIGTERM first, and takes the workers first; so does an operator."""
    code, _ = _told_of_a_death(number, own=own)
    assert code in COMPUTE_OUTAGES, "the visit is repeated"


def test_a_worker_that_died_over_nobodys_records_is_not_said_to_have_failed_on_some(forks: list[int]) -> None:
    code, detail = _told_of_a_death(signal.SIGSEGV, own=True)
    assert (code, "records" in detail, "signal 11" in detail) == ("program-failed", False, True)


@pytest.mark.parametrize(("cores", "threads", "forked"), [(1, 1, 1), (2, 1, 2), (2, 2, 1), (8, 2, 2)])
def test_the_next_one_is_forked_beside_a_launch_that_leaves_it_a_core_of_the_containers(
    forks: list[int], monkeypatch: pytest.MonkeyPatch, cores: int, threads: int, forked: int
) -> None:
    """What the machine has beyond that is not ours: a worker would warm up on the launch's own core."""
    monkeypatch.setattr("gpu_agent.compute.__main__.usable_cores", lambda: cores)
    Agent().launch(threads=threads)
    assert len(forks) == forked


def test_a_launch_that_finds_no_worker_makes_one(forks: list[int]) -> None:
    agent = Agent()
    for number in (1, 2, 3):
        agent.launch()
        assert (len(forks), agent.parent._left()) == (number, None)
        agent.say(op="destroy", keep=True)
        assert (len(forks), agent.parent._left() is None) == (number, False)


def trained(world: World) -> gpu.Scrub:
    options = OPTIONS.model_copy(update={"threads": usable_cores()})
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
