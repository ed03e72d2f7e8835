"""Reading back by tag: what is as it was is not hashed again, what is not is told as it lies, and nothing is taken on trust."""

from __future__ import annotations

import os
from collections.abc import Callable

import pytest
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from gpu_agent.hardware import hbm as hbm_module
from gpu_agent.hardware import read_back
from gpu_agent.hardware.hbm import HBM
from shared.claims.layout import region_digest
from shared.names import RegionKind
from shared.wire import gpu
from tests.gpu.gpu_training import DATA, committed_visit
from tests.gpu.gpu_world import RECORD_BYTES, Holder, World, make_world
from tests.gpu.test_gpu_paper import PAPER, fence_and_sweep, install

KEY = bytes(range(32))


@pytest.fixture
def hashed(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Lengths of the regions that were hashed, as they are."""
    lengths: list[int] = []

    def counted(plan: read_back.RegionPlan, read: Callable[[int, int], bytes | memoryview]) -> bytes:
        lengths.append(plan.length)
        return region_digest(plan, read)

    monkeypatch.setattr(read_back, "region_digest", counted)
    return lengths


def _trained(world: World, work: str = "w1") -> Holder:
    holder = world.visit(DATA)
    assert world.train(holder, work, 4, 0).state == "done"
    return holder


def test_what_is_as_committed_is_not_hashed_again(world: World, hashed: list[int]) -> None:
    world.set_up()
    committed = committed_visit(world, DATA, "w1", 0)
    hashed.clear()
    clean = world.measure()
    assert (clean.model, clean.optimiser) == (committed.model, committed.optimiser)
    assert world.run(gpu.RollBack())[0] == committed
    assert hashed == []


@pytest.mark.parametrize("kind", [RegionKind.MODEL, RegionKind.OPTIMISER])
@pytest.mark.parametrize("place", ["first", "last"])
def test_any_other_byte_is_told_as_it_lies(world: World, hashed: list[int], kind: RegionKind, place: str) -> None:
    world.set_up()
    committed = committed_visit(world, DATA, "w1", 0)
    model = world.device._state.model
    plan = model.plan.model if kind is RegionKind.MODEL else model.plan.optimiser
    last = max(placed.offset + placed.size_bytes for placed in plan.tensors) - 1
    at = world.region(kind).address + (0 if place == "first" else last)
    world.hbm.view(at, 1)[0] ^= 1
    hashed.clear()
    found = world.measure()
    expected = region_digest(plan, lambda offset, length: world.hbm.view(world.region(kind).address + offset, length))
    got, was = (found.model, committed.model) if kind is RegionKind.MODEL else (found.optimiser, committed.optimiser)
    assert got == expected.hex() != was
    assert hashed == [model.plan.model.length, model.plan.optimiser.length]
    assert world.run(gpu.RollBack())[0] == committed
    assert world.measure().model == committed.model


def test_an_older_commit_is_not_the_last_one(world: World) -> None:
    world.set_up()
    committed_visit(world, DATA, "w1", 0)
    region = world.region(RegionKind.MODEL)
    older = bytes(world.hbm.view(region.address, region.length))
    newer = committed_visit(world, DATA, "w2", 4)
    world.hbm.write(region.address, older)
    assert world.measure().model != newer.model


def test_a_commit_finds_its_digests_worked_out(world: World, hashed: list[int]) -> None:
    world.set_up()
    world.device.look_ahead()  # an earlier launch's successor
    assert not world.device.has_work_ahead
    holder = _trained(world)
    assert world.device.has_work_ahead
    world.device.look_ahead()
    assert not world.device.has_work_ahead
    assert len(hashed) == 2 + 2  # the initial model's, and these
    world.device.look_ahead()
    committed = world.run(gpu.Commit(work="w1"))[0]
    assert len(hashed) == 4
    model = world.device._state.model
    assert model._memory.digests(model._kept, 4) == model.committed == model._memory.digests(model._working, 4)
    assert committed == model.committed.told()
    world.run(gpu.Scrub(region=holder.grant.region))
    assert world.measure().model == committed.model


@pytest.mark.parametrize("kind", [RegionKind.MODEL, RegionKind.OPTIMISER])
def test_what_changed_since_is_committed_as_it_lies(world: World, hashed: list[int], kind: RegionKind) -> None:
    world.set_up()
    _trained(world)
    world.device.look_ahead()
    ahead = world.device._state.model._trained
    assert ahead is not None
    world.hbm.view(world.region(kind).address, 1)[0] ^= 1
    committed = world.run(gpu.Commit(work="w1"))[0]
    model = world.device._state.model
    assert committed != ahead.digests.told()
    assert model._memory.digests(model._kept, 4).told() == committed


def test_what_was_rolled_back_leaves_nothing_worked_out(world: World, hashed: list[int]) -> None:
    world.set_up()
    holder = _trained(world)
    world.device.look_ahead()
    before = world.run(gpu.RollBack(), gpu.Scrub(region=holder.grant.region))[0]
    assert world.device._state.model._trained is None
    hashed.clear()
    world.device.look_ahead()  # nothing was trained since
    assert hashed == []
    assert world.measure().model == before.model


def test_nothing_is_worked_out_while_a_key_to_all_of_memory_may_write(world: World, hashed: list[int]) -> None:
    world.set_up(**PAPER)
    holder = install(world)
    assert holder.send(DATA[: 32 * RECORD_BYTES]).published
    fence_and_sweep(world, holder)
    assert world.train(holder, steps=2).state == "done"
    state = world.device._state
    state.unswept = (
        True  # as an installed grant leaves it; with one buffer none is installed here before the next scrub
    )
    hashed.clear()
    assert not world.device.has_work_ahead
    world.device.look_ahead()
    assert (hashed, state.model._trained) == ([], None)
    state.unswept = False
    world.device.look_ahead()
    assert state.model._trained is not None


def test_a_powered_off_device_looks_at_nothing(hashed: list[int]) -> None:
    world = make_world()
    world.set_up()
    _trained(world)
    hashed.clear()
    world.device.close()
    world.device.look_ahead()
    assert hashed == []


def test_a_tag_is_gmac_over_the_whole_extent(monkeypatch: pytest.MonkeyPatch) -> None:
    memory = HBM(1 << 24, os.urandom)
    data = os.urandom(3 * 4096 + 5)
    address = memory.allocate(len(data))
    memory.write(address, data)
    one = memory.tag(KEY, 7, address, len(data))
    assert one == AESGCM(KEY).encrypt((7).to_bytes(8, "big") + bytes(4), b"", data)
    assert memory.tag(KEY, 8, address, len(data)) != one
    assert memory.tag(bytes(32), 7, address, len(data)) != one
    assert memory.tag(KEY, 7, address, 0) == b""
    monkeypatch.setattr(hbm_module, "_TAGGED", 4096)
    parts = memory.tag(KEY, 7, address, len(data))
    assert len(parts) == 4 * 16
    memory.write(address, data[4096:8192] + data[:4096])  # two parts change places
    assert memory.tag(KEY, 7, address, len(data))[:32] not in (parts[:32], parts[16:32] + parts[:16])
    memory.close()
