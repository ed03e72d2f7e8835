"""The compute parent is killed, or stands still, while it is to end a launch: that is destroyed all the same, and the next one works."""

from __future__ import annotations

import os
import signal
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from gpu_agent.compute import messages, process
from gpu_agent.compute.forked import _OOM_SCORE
from shared.wire import gpu, gpu_answers
from tests.cores import writes_none
from tests.gpu.gpu_training import DATA, committed_visit, waiting_workers, workers
from tests.gpu.gpu_world import Holder, World, records


def _training(world: World) -> tuple[Holder, set[int]]:
    """A training that makes no step before it is killed, and the worker that has it."""
    holder = world.visit(records(800))
    waiting = waiting_workers(world)
    for pid in waiting:
        with suppress(ProcessLookupError):  # one may be gone since it was listed
            _wait_until_it_would_die(pid)
            os.kill(pid, signal.SIGSTOP)
    world.run(world.train_command(holder, steps=100))
    return holder, waiting | workers(world)


def _wait_until_it_would_die(pid: int) -> None:
    """With its parent: stopped before it could ask for that, a worker would outlive it, as none does that runs. It says so last of all."""
    deadline = time.monotonic() + 20
    while time.monotonic() < deadline:
        try:
            if Path(f"/proc/{pid}/oom_score_adj").read_bytes().strip() == _OOM_SCORE:
                return
        except OSError:  # it is gone
            return
        time.sleep(0.001)
    raise AssertionError(f"worker {pid} never asked to die with its parent")


def _memory(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/maps").read_text()
    except OSError:
        return ""


def _rolled_back_to(model: Any, world: World, pids: set[int]) -> None:
    """The launch counts for nothing, and nothing of it is left."""
    assert world.run(gpu.RollBack())[0].model == model
    assert not any(map(_memory, pids)), "nothing of a record is left in a worker"


def _goes_on(world: World, holder: Holder) -> None:
    """The lost visit is said to be lost, and the next one is trained."""
    assert world.run(gpu.Poll(work="w1"))[0].code == "compute-lost"
    world.run(gpu.Scrub(region=holder.grant.region))
    committed_visit(world, DATA, "w2", 0)


def test_no_process_of_compute_leaves_records_in_a_core_when_it_crashes(world: World) -> None:
    """A worker has all of HBM in its address space."""
    world.set_up()
    assert world.compute.pid is not None
    assert all(map(writes_none, (world.compute.pid, *waiting_workers(world))))


@pytest.mark.parametrize("before", [True, False], ids=["before it is told", "once it is told"])
def test_a_parent_that_is_killed_destroys_its_launch(
    world: World, monkeypatch: pytest.MonkeyPatch, before: bool
) -> None:
    world.set_up()
    before_it = world.measure()
    holder, pids = _training(world)
    compute, parent, send = world.compute, world.compute.pid, world.compute._send
    assert parent is not None

    def sent(message: dict[str, Any]) -> None:
        if message["op"] == "destroy" and before:
            os.kill(parent, signal.SIGKILL)
        if message["op"] == "destroy" and not before:
            os.kill(parent, signal.SIGSTOP)  # else it may have obeyed by then
        send(message)
        os.kill(parent, signal.SIGKILL)

    monkeypatch.setattr(compute, "_send", sent)
    _rolled_back_to(before_it.model, world, pids)
    monkeypatch.undo()
    _goes_on(world, holder)
    assert compute.pid != parent


def test_a_parent_that_stands_still_is_killed_and_its_late_word_counts_for_nothing(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As in a machine that is paused for longer than a parent may take. Its answer would be the next request's, and so on for ever."""
    world.set_up()
    holder, pids = _training(world)
    parent = world.compute.pid
    assert parent is not None
    monkeypatch.setattr(process, "KILL_DEADLINE_S", 0.1)
    os.kill(parent, signal.SIGSTOP)
    answers = world.answers(gpu.RollBack(), gpu.Scrub(region=holder.grant.region))
    with suppress(ProcessLookupError):
        os.kill(parent, signal.SIGCONT)
    assert isinstance(answers[-1], gpu_answers.Scrubbed), answers[-1]
    assert not any(map(_memory, pids))
    monkeypatch.undo()
    for number in range(2):
        committed_visit(world, DATA, f"w{number + 2}", 4 * number)
    assert not world.compute._replies


@pytest.mark.parametrize(
    "said", [b"\xff", b"[]", b"{}", b"[" * 50_000, b'{"op":"quieter","launch":%d}', b'{"op":"step","launch":%d}'],
    ids=["no text", "no message", "nothing", "too deep", "no news", "half of it"],
)  # fmt: skip
def test_a_parent_that_says_what_makes_no_sense_is_killed_and_its_launch_is_destroyed(
    world: World, monkeypatch: pytest.MonkeyPatch, said: bytes
) -> None:
    """It ended the thread that reads: nobody heard of the parent's end any more, and every later launch was refused."""
    world.set_up()
    before_it = world.measure()
    holder, pids = _training(world)
    parent, unpack = world.compute.pid, messages.unpack
    said = said.replace(b"%d", b"%d" % world.compute._number)
    monkeypatch.setattr(messages, "unpack", lambda _: unpack(said))
    _rolled_back_to(before_it.model, world, pids)
    monkeypatch.undo()
    _goes_on(world, holder)
    assert world.compute.pid != parent


def test_a_launch_that_no_parent_heard_of_is_none(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """Else it would be waited for till the next one, and nothing could be scrubbed until then."""
    world.set_up()
    holder = world.visit(DATA)
    parent, ready = world.compute.pid, world.compute._ready
    assert parent is not None

    def dead() -> None:
        ready()
        os.kill(parent, signal.SIGKILL)
        reader = world.compute._reader
        assert reader is not None
        reader.join(20)

    monkeypatch.setattr(world.compute, "_ready", dead)
    assert world.refused(world.train_command(holder)) == "compute-lost"
    monkeypatch.undo()
    world.run(gpu.Scrub(region=holder.grant.region))
    committed_visit(world, DATA, "w2", 0)
