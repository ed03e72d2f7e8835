"""On a CUDA device, where there is one: the host's own tests over its memory, training there, the sweep, and a killed launch."""

from __future__ import annotations

import itertools
import os
import signal
from collections.abc import Callable, Iterator

import pytest
import torch

from gpu_agent.compute.card_hasher import WINDOW
from gpu_agent.compute.device_process import DeviceCompute
from gpu_agent.compute.fabric import DeviceFabric
from gpu_agent.compute.waiting import MOST, Waiting
from gpu_agent.hardware.device_hbm import DeviceHBM
from gpu_agent.hardware.hbm import Extent
from shared.canonical import blake3_256
from shared.wire import gpu
from tests.gpu.device_behaviour import BEHAVIOUR
from tests.gpu.gpu_training import DATA, committed_visit
from tests.gpu.gpu_world import World, make_world
from tests.gpu.test_gpu_scrub import descendants
from tests.gput.test_cuda_bench import TINY

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device on this machine")
DEVICE = "cuda:0"


@pytest.fixture(scope="module")
def powered() -> Iterator[World]:
    world = make_world(hbm_bytes=256 << 20, device=DEVICE)
    yield world
    world.device.close()


@pytest.fixture
def device(powered: World) -> Iterator[World]:
    fresh = World(powered.device, powered.hbm, powered.compute, powered.now, powered.faults)
    yield fresh
    assert not fresh.faults


def test_bytes_go_to_the_card_and_come_back() -> None:
    fabric = DeviceFabric(DEVICE, 64 << 20)
    hbm = DeviceHBM(fabric, os.urandom)
    assert fabric.hashes, "the card makes its own digests"
    try:
        at, data = hbm.allocate(20 << 20), os.urandom(20 << 20)
        hbm.write(at, data)
        assert bytes(hbm.view(at, len(data))) == data
        assert hbm.digest(at, len(data)) == blake3_256(data)
        hbm.scrub(at + 3, len(data) - 5)
        assert bytes(hbm.view(at, len(data))) == data[:3] + bytes(len(data) - 5) + data[-2:]
        assert fabric.clear_free() > 0
    finally:
        hbm.close()


@pytest.mark.parametrize("behaviour", BEHAVIOUR, ids=lambda test: test.__name__)
def test_the_card_behaves_as_the_host_does(device: World, behaviour: Callable[[World], None]) -> None:
    behaviour(device)


def test_training_on_the_card_ends_near_that_on_the_host(device: World, world: World) -> None:
    losses = []
    for one in (device, world):
        one.set_up()
        committed_visit(one, DATA, "w1", 0)
        holder = one.visit(DATA)
        losses.append(one.train(holder, "w2", steps=4, first=4).loss)
        one.run(gpu.RollBack(), gpu.Scrub(region=holder.grant.region))
    assert losses[0] == pytest.approx(losses[1], rel=1e-2)
    assert device.compute.most_beside, "tensors of the step, beside HBM"


def _unknown(world: World) -> DeviceCompute:
    """Its compute, as if it had never met a launch: what an earlier test learned of such ones decides how many are made beside it."""
    assert isinstance(world.compute, DeviceCompute)
    world.compute._waiting, world.compute._digest = Waiting(), ""
    world.set_up()
    return world.compute


def test_the_next_worker_waits_while_one_trains_and_outlives_the_sweep(device: World) -> None:
    device.compute = _unknown(device)
    free = device.compute._waiting.free()
    holder = device.visit(DATA)
    device.train(holder, steps=4)
    assert device.compute.pid is not None
    both = set(descendants(device.compute.pid))
    device.run(gpu.Commit(work="w1"), gpu.Scrub(region=holder.grant.region))
    left = set(descendants(device.compute.pid))
    assert (len(both), len(left), left < both) == (2, 1, True)
    assert device.compute._settled() == pytest.approx(free, abs=256 << 20)


def test_of_short_launches_several_wait_and_hold_what_is_said_of_each(device: World) -> None:
    """A sweep counts on it: what one of several that wait holds is what one that waited alone held."""
    compute, waited = _unknown(device), list[int]()
    for number in range(9):
        holder, work = device.visit(DATA), f"w{number}"
        device.train(holder, work, steps=1, first=number)
        device.run(gpu.Commit(work=work), gpu.Scrub(region=holder.grant.region))
        assert compute.pid is not None
        waited.append(len(descendants(compute.pid)))
        assert compute._settled() == pytest.approx(compute._waiting.free(), abs=64 << 20)
        compute._learn()
    assert max(waited) == MOST
    assert min(waited[waited.index(MOST) :]) < MOST, "they are used up before others are made"


def test_a_digest_of_many_parts_is_the_hosts(device: World, world: World) -> None:
    data = os.urandom(5 << 20)
    found = []
    for hbm in (device.hbm, world.hbm):
        at = hbm.allocate(len(data))
        hbm.write(at, data)
        cuts = [0, 1, 4097, 2 << 20, (4 << 20) + 3, len(data)]
        parts = [
            (b"head" * number, Extent(at + start, end - start))
            for number, (start, end) in enumerate(itertools.pairwise(cuts))
        ]
        found.append(hbm.digest_of(parts))
        hbm.free(at)
    assert found[0] == found[1]


def test_a_digest_of_more_than_a_window_is_the_librarys() -> None:
    hbm, data = DeviceHBM(DeviceFabric(DEVICE, WINDOW + (64 << 20)), os.urandom), os.urandom(1 << 20) * 140
    cuts = [0, 5, WINDOW - 40, WINDOW + 40, len(data)]
    try:
        at = hbm.allocate(len(data))
        hbm.write(at, data)
        parts = [(b"head", Extent(at + start, end - start)) for start, end in itertools.pairwise(cuts)]
        assert hbm.digest(at, len(data)) == blake3_256(data)
        joined = b"".join(b"head" + data[start:end] for start, end in itertools.pairwise(cuts))
        assert hbm.digest_of(parts) == blake3_256(joined)
    finally:
        hbm.close()


def test_a_killed_launch_leaves_memory_that_can_be_swept(device: World) -> None:
    device.set_up()
    holder = device.visit(DATA)
    device.run(device.train_command(holder, steps=8))
    assert device.compute.pid is not None
    for pid in descendants(device.compute.pid):
        os.kill(pid, signal.SIGKILL)
    device.finish("w1")
    device.run(gpu.RollBack(), gpu.Scrub(region=holder.grant.region))
    assert device.phase(holder.grant.region) == "CLEAN"


def test_the_bench_measures_on_the_card() -> None:
    from gput.local.cuda_bench import training, transfer

    found = transfer(DEVICE, 64, 1)[0] | training(DEVICE, 10, 2, TINY, 1)[0]
    assert found.pop("loss_apart") < 0.05
    assert all(value > 0 for value in found.values())
