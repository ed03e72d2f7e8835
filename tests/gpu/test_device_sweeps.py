"""Memory of a device outside of HBM: swept after every launch, beside the worker that waits for the next or beside nobody (law L7)."""

from __future__ import annotations

import contextlib
import os
import signal
import time
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest

from gpu_agent.compute import device_process
from gpu_agent.compute.device_process import DeviceCompute, _like
from gpu_agent.compute.waiting import MOST, Waiting
from gpu_agent.hardware.compute import Finished, Launch, Part
from gpu_agent.hardware.hbm import Extent
from shared.errors import Unavailable, VerificationFailed
from shared.wire import gpu
from tests.gpu.gpu_training import DATA
from tests.gpu.gpu_world import World, make_world
from tests.gpu.test_gpu_scrub import descendants

FREE = 12345


@pytest.fixture(scope="module")
def powered() -> Iterator[World]:
    world = make_world(hbm_bytes=64 << 20, device="cpu")
    yield world
    world.device.close()


class Sweeps:
    """Every sweep of memory outside of HBM: who was alive, and how much it had to cover."""

    def __init__(self, world: World, patch: pytest.MonkeyPatch) -> None:
        self.alive: list[set[int]] = []
        self.least: list[int | None] = []
        self._compute, self.fault = world.compute, False
        patch.setattr(world.hbm._fabric, "clear_free", self._sweep)  # type: ignore[attr-defined]  # a DeviceHBM
        patch.setattr(world.hbm._fabric, "free", lambda: FREE)  # type: ignore[attr-defined]

    def workers(self) -> set[int]:
        assert self._compute.pid is not None
        return set(descendants(self._compute.pid))

    def once(self, count: int) -> set[int]:
        """The workers, as soon as there are so many: the parent forks who is to wait by itself, when it gets to it."""
        deadline = time.monotonic() + 60
        while len(found := self.workers()) != count:
            assert time.monotonic() < deadline, f"{len(found)} workers, not {count}"
            time.sleep(0.002)
        return found

    def _sweep(self, least: int | None = None) -> int:
        self.alive.append(self.workers())
        self.least.append(least)
        if self.fault:
            raise VerificationFailed("memory did not come back", code="scrub-incomplete")
        return 0


@pytest.fixture
def sweeps(powered: World, monkeypatch: pytest.MonkeyPatch) -> Sweeps:
    """Of a session that begins after it; those of its set-up are not among them."""
    found = Sweeps(powered, monkeypatch)
    assert isinstance(powered.compute, DeviceCompute)
    powered.compute._waiting, powered.compute._digest = Waiting(), ""
    powered.set_up()
    found.alive.clear()
    found.least.clear()
    return found


def test_memory_outside_of_hbm_is_swept_beside_the_next_worker_and_nobody_else(powered: World, sweeps: Sweeps) -> None:
    holder = powered.visit(DATA)
    before = sweeps.once(1)
    powered.train(holder)
    both = sweeps.once(2)
    assert sweeps.alive == []
    powered.run(gpu.Commit(work="w1"), gpu.Scrub(region=holder.grant.region))
    assert (sweeps.alive, sweeps.least) == ([both - before], [FREE])
    powered.run(gpu.Scrub(region=holder.grant.region))
    assert len(sweeps.alive) == 1  # nothing has run since
    powered.train(powered.visit(DATA), "w2", first=3)
    assert before & sweeps.workers() == set()
    assert both - before <= sweeps.workers(), "who waited trains"


def test_where_a_training_gave_memory_back_it_is_swept_beside_nobody(powered: World, sweeps: Sweeps) -> None:
    holder = powered.visit(DATA)
    powered.train(holder)
    assert powered.compute._kept
    powered.compute._kept = False
    powered.run(gpu.Commit(work="w1"), gpu.Scrub(region=holder.grant.region))
    assert (sweeps.alive, sweeps.least) == ([set()], [None])
    assert len(sweeps.workers()) <= 1, "the next one is forked after it"


def test_a_second_launch_before_a_sweep_takes_who_waits_and_nobody_is_forked_beside_it(
    powered: World, sweeps: Sweeps
) -> None:
    holders = [powered.visit(DATA, region) for region in (0, 1)]
    powered.train(holders[0], "w1")
    both = sweeps.once(2)
    powered.run(gpu.Commit(work="w1"))
    powered.train(holders[1], "w2", first=3)
    assert len(sweeps.workers()) == 1
    assert sweeps.workers() < both
    powered.run(gpu.Commit(work="w2"), gpu.Scrub(region=holders[0].grant.region))
    assert (sweeps.alive, sweeps.least) == ([set()], [None])


def test_a_killed_launch_takes_the_next_worker_with_it(powered: World, sweeps: Sweeps) -> None:
    holder = powered.visit(DATA)
    before = set[int]()
    while before != sweeps.workers():  # one from before the set-up may just be on its way out
        before = sweeps.once(1)
        for pid in before:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGSTOP)  # it has its launch and does not get to the end of it
        time.sleep(0.2)
    powered.run(powered.train_command(holder, steps=8))
    # The next one is forked once this one has its launch; had it died before, another would have had that.
    assert before < sweeps.once(2)
    for pid in before:
        os.kill(pid, signal.SIGKILL)
    powered.finish("w1")
    powered.run(gpu.RollBack(), gpu.Scrub(region=holder.grant.region))
    assert (sweeps.alive, sweeps.least) == ([set()], [None])


def test_memory_that_cannot_be_swept_fails_the_scrub(powered: World, sweeps: Sweeps) -> None:
    holder = powered.visit(DATA)
    powered.train(holder)
    powered.run(gpu.Commit(work="w1"))
    sweeps.fault = True
    assert powered.refused(gpu.Scrub(region=holder.grant.region)) == "scrub-incomplete"
    assert powered.phase(holder.grant.region) == "DIRTY"
    sweeps.fault = False
    powered.run(gpu.Scrub(region=holder.grant.region))
    assert powered.phase(holder.grant.region) == "CLEAN"
    assert sweeps.least[-1] is None
    assert sweeps.alive[-1] == set(), "all that could hold some of it is dead"


def test_what_is_free_counts_once_it_has_come_to_rest(
    powered: World, sweeps: Sweeps, monkeypatch: pytest.MonkeyPatch
) -> None:
    compute, readings = powered.compute, [5, 7, 9, 9, 11]
    assert isinstance(compute, DeviceCompute)
    monkeypatch.setattr(device_process, "_BETWEEN_S", 0.0)
    monkeypatch.setattr(powered.hbm._fabric, "free", lambda: readings.pop(0))  # type: ignore[attr-defined]  # a DeviceHBM
    compute._learn()
    assert compute._waiting.free() == FREE, "as it was beside the one before"
    compute._waiting.forget()
    compute._learn()
    assert compute._waiting.free() == 9
    readings += range(1000)
    compute._waiting.forget()
    with pytest.raises(Unavailable) as busy:
        compute._learn()
    assert (busy.value.code, compute._waiting.free()) == ("gpu-memory-busy", None)


def test_what_is_free_is_found_out_anew_where_nobody_outlived_a_sweep(
    powered: World, sweeps: Sweeps, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(powered.hbm._fabric, "free", lambda: FREE - 5)  # type: ignore[attr-defined]  # a DeviceHBM
    assert isinstance(powered.compute, DeviceCompute)
    for work, kept, least in (("w1", True, FREE), ("w2", False, None), ("w3", True, FREE - 5)):
        powered.compute._learn()  # as loading the program does, at each visit's beginning
        holder = powered.visit(DATA)
        powered.train(holder, work, first=3 * int(work[1]) - 3)
        powered.compute._kept = kept
        powered.run(gpu.Commit(work=work), gpu.Scrub(region=holder.grant.region))
        assert sweeps.least[-1] == least


def test_what_is_free_is_found_out_anew_beside_a_worker_that_warmed_up_otherwise(
    powered: World, sweeps: Sweeps, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One that has run a larger batch has loaded other kernels, and holds more."""
    compute = powered.compute
    assert isinstance(compute, DeviceCompute)
    compute._learn()
    monkeypatch.setattr(powered.hbm._fabric, "free", lambda: FREE - 5)  # type: ignore[attr-defined]  # a DeviceHBM
    compute._learn()
    assert compute._waiting.free() == FREE
    holder = powered.visit(DATA)
    powered.train(holder)
    powered.run(gpu.Commit(work="w1"), gpu.Scrub(region=holder.grant.region))
    compute._learn()  # beside one that was made for launches like that
    assert compute._waiting.free() == FREE - 5


def test_the_next_worker_may_take_what_such_a_training_left_the_last_time(
    powered: World, sweeps: Sweeps, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Memory of this host is not counted, so what a training took is told here."""
    compute, rooms, taken = powered.compute, list[int](), [None, 1000, 900, FREE, 5]
    assert isinstance(compute, DeviceCompute)
    finished, send, quieten = compute._finished, compute._send, compute._quieten
    monkeypatch.setattr(compute, "_quieten", lambda *, keep: (quieten(keep=keep)[0], 0.0))  # no launch is short

    def told(news: Finished) -> None:
        finished(replace(news, beside=taken[len(rooms) - 1]))

    def sent(message: dict[str, Any]) -> None:
        if message["op"] == "run":
            rooms.append(message["room"])
        send(message)

    monkeypatch.setattr(compute, "_finished", told)
    monkeypatch.setattr(compute, "_send", sent)
    for number in range(5):
        holder, work = powered.visit(DATA), f"w{number}"
        powered.train(holder, work, first=3 * number)
        powered.run(gpu.Commit(work=work), gpu.Scrub(region=holder.grant.region))
        compute._learn()
    most = 2 * 1000
    assert rooms == [0, 0, FREE - most, FREE - most, 0], "nothing where it would want all of it"
    assert len(compute._waiting._taken) == 1


def test_short_launches_find_a_worker_waiting_and_each_sweep_counts_those_that_are_there(
    powered: World, sweeps: Sweeps, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What a training took, and how long its end waited for the next worker, is told here; they are processes as ever."""
    compute, each = powered.compute, 10
    assert isinstance(compute, DeviceCompute)
    finished, send, quieten = compute._finished, compute._send, compute._quieten
    asked = list[tuple[int, int]]()

    def sent(message: dict[str, Any]) -> None:
        if message["op"] == "run":
            asked.append((message["beside"], message["room"]))
        send(message)

    monkeypatch.setattr(compute, "_finished", lambda news: finished(replace(news, beside=1000)))
    monkeypatch.setattr(compute, "_send", sent)
    monkeypatch.setattr(compute, "_quieten", lambda *, keep: (quieten(keep=keep)[0], 60.0))

    def free() -> int:
        return FREE - each * len(sweeps.workers())

    monkeypatch.setattr(powered.hbm._fabric, "free", free)  # type: ignore[attr-defined]  # a DeviceHBM
    compute._waiting.forget()
    compute._learn()
    for number in range(8):
        holder, work = powered.visit(DATA), f"w{number}"
        powered.train(holder, work, first=3 * number)
        powered.run(gpu.Commit(work=work), gpu.Scrub(region=holder.grant.region))
        compute._learn()
    whole, shared = FREE - 2000 - each, (FREE - 2000 - MOST * each) // MOST
    assert asked == [(1, 0), (1, whole), (MOST, shared), (3, 0), (2, 0), (1, 0), (MOST, shared), (3, 0)]
    assert [len(alive) for alive in sweeps.alive] == [1, 1, 4, 3, 2, 1, 4, 3]
    assert sweeps.least == [FREE - each * len(alive) for alive in sweeps.alive]


def test_launches_are_alike_that_want_the_same_memory() -> None:
    nowhere = Extent(0, 0)
    one = Launch(
        kind="train", code=nowhere, code_digest="ab", model=nowhere, gradients=nowhere, optimiser=nowhere,
        committed=nowhere, data=nowhere, records=8, first_step=0, steps=2, total_steps=4, options={"batch_size": 4},
    )  # fmt: skip
    assert _like(one) == _like(replace(one, records=16, first_step=2, data=Extent(4096, 8)))
    other: tuple[dict[str, Any], ...] = ({"kind": "evaluate"}, {"code_digest": "cd"}, {"options": {"batch_size": 8}}, {"accumulate": True},
             {"privacy": {}}, {"parts": (Part(nowhere, 1),)})  # fmt: skip
    kinds = {_like(replace(one, **changes)) for changes in other}
    assert len(kinds | {_like(one)}) == len(other) + 1
