"""Reading back by tag: what is as it was is not hashed again, what is not is told as it lies, and nothing is taken on trust."""

from __future__ import annotations

import os
from dataclasses import replace
from typing import Any

import pytest
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from gpu_agent.hardware import allotment, pieces, read_back
from gpu_agent.hardware import hbm as hbm_module
from gpu_agent.hardware.hbm import HBM, Extent
from gpu_agent.hardware.read_back import ReadBack
from shared.claims.layout import region_digest
from shared.names import RegionKind
from shared.wire import gpu
from tests.gpu.gpu_training import DATA, committed_visit, state_of
from tests.gpu.gpu_world import RECORD_BYTES, Holder, World, make_world
from tests.gpu.test_gpu_paper import PAPER, fence_and_sweep, install
from tests.gpu.test_gpu_private import PRIVACY

KEY = bytes(range(32))


@pytest.fixture
def hashed(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Lengths of the regions that were hashed, as they are."""
    lengths: list[int] = []
    extents = ReadBack._extents

    def counted(memory: ReadBack, kind: RegionKind, base: int) -> list[tuple[bytes, Extent]]:
        lengths.append(read_back._regions(memory._plan)[kind].length)
        return extents(memory, kind, base)

    monkeypatch.setattr(ReadBack, "_extents", counted)
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


@pytest.mark.parametrize("place", ["first", "last"])
def test_of_another_optimiser_state_no_version_is_told(world: World, place: str) -> None:
    world.set_up()
    committed = committed_visit(world, DATA, "w1", 0)
    assert (committed.optimiser, world.measure().optimiser) == (None, None)
    assert world.measure().version == committed.version > 0
    model = world.device._state.model
    last = max(placed.offset + placed.size_bytes for placed in model.plan.optimiser.tensors) - 1
    at = world.region(RegionKind.OPTIMISER).address + (0 if place == "first" else last)
    world.hbm.view(at, 1)[0] ^= 1
    found = world.measure()
    assert (found.model, found.version) == (committed.model, 0)
    assert world.run(gpu.RollBack())[0] == committed
    assert world.measure().version == committed.version


def test_the_optimiser_state_is_hashed_once_and_when_a_checkpoint_asks(world: World, hashed: list[int]) -> None:
    world.set_up()
    committed_visit(world, DATA, "w1", 0)
    model = world.device._state.model
    hashed.clear()
    asked = gpu.Checkpoint(key=KEY, name="c1", length=1 << 20)
    part = world.run(asked)[0]
    assert hashed == [model.plan.optimiser.length]
    region = world.region(RegionKind.OPTIMISER).address
    assert part.optimiser == region_digest(model.plan.optimiser, lambda o, n: world.hbm.view(region + o, n)).hex()
    hashed.clear()
    world.run(asked)
    assert world.measure().optimiser == world.run(gpu.RollBack())[0].optimiser == part.optimiser, "known from now on"
    assert hashed == []


def test_a_changed_committed_copy_is_not_named(world: World) -> None:
    """It would be sealed as what was committed, and a restore would believe it."""
    world.set_up()
    committed_visit(world, DATA, "w1", 0)
    for address in (world.device._state.model._kept.optimiser, world.region(RegionKind.OPTIMISER).address):
        world.hbm.view(address, 1)[0] ^= 1
    assert world.refused(gpu.Checkpoint(key=KEY, name="c1", length=1 << 20)) == "committed-copy-changed"
    assert world.refused(gpu.RollBack()) == "committed-copy-changed"


@pytest.mark.parametrize("changes", [{"accumulate": "tour"}, {"privacy": PRIVACY}], ids=["accumulated", "private"])
def test_where_claims_need_the_optimiser_state_every_commit_names_it(world: World, changes: dict[str, Any]) -> None:
    world.set_up(**changes)
    committed = committed_visit(world, DATA, "w1", 0)
    assert committed.optimiser is not None
    assert state_of(world)[:2] == (committed.model, committed.optimiser)


def test_before_a_key_to_all_of_memory_is_given_the_optimiser_state_is_named(world: World) -> None:
    world.set_up(**PAPER)
    holder = install(world)
    assert holder.send(DATA[: 32 * RECORD_BYTES]).published
    fence_and_sweep(world, holder)
    assert world.train(holder, steps=2).state == "done"
    assert world.run(gpu.Commit(work="w1"))[0].optimiser is not None


def test_an_older_commit_is_not_the_last_one(world: World) -> None:
    world.set_up()
    committed_visit(world, DATA, "w1", 0)
    region = world.region(RegionKind.MODEL)
    older = bytes(world.hbm.view(region.address, region.length))
    newer = committed_visit(world, DATA, "w2", 4)
    world.hbm.write(region.address, older)
    assert world.measure().model != newer.model


@pytest.fixture
def no_spare(monkeypatch: pytest.MonkeyPatch) -> None:
    """There is memory for one committed copy only."""
    monkeypatch.setattr(allotment, "SPARE_SHARE", 1 << 60)


@pytest.mark.parametrize("spare", [True, False])
def test_a_commit_finds_its_digests_worked_out(
    world: World, hashed: list[int], request: pytest.FixtureRequest, spare: bool
) -> None:
    if not spare:
        request.getfixturevalue("no_spare")
    world.set_up()
    world.device.look_ahead()  # an earlier launch's successor
    assert not world.device.has_work_ahead
    holder = _trained(world)
    assert world.device.has_work_ahead
    world.device.look_ahead()
    assert not world.device.has_work_ahead
    assert len(hashed) == 2 + 1  # the initial model and optimiser state, and this model
    world.device.look_ahead()
    committed = world.run(gpu.Commit(work="w1"))[0]
    assert len(hashed) == 3
    model = world.device._state.model
    assert model.committed is not None
    assert committed == model.committed.told()
    for copy in (model._kept, model._working):
        assert model._memory.digests(copy, 4, optimiser=False) == replace(model.committed, version=0)
    world.run(gpu.Scrub(region=holder.grant.region))
    assert world.measure().model == committed.model


@pytest.mark.usefixtures("no_spare")
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
    assert committed.version > ahead.digests.version, "another state than the one that was looked at"
    assert (committed.model != ahead.digests.model) is (kind is RegionKind.MODEL)
    lies = model._memory.digests(model._kept, 4)
    assert (lies.model, lies.optimiser) == (model.named().model, model.named().optimiser)


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
    extent = Extent(address, len(data))

    def tag(key: bytes, number: int, one: Extent = extent) -> bytes:
        return memory.tags(key, [(number, one)])[0]

    one = tag(KEY, 7)
    assert one == AESGCM(KEY).encrypt((7).to_bytes(8, "big") + bytes(4), b"", data)
    assert tag(KEY, 8) != one
    assert tag(bytes(32), 7) != one
    assert tag(KEY, 7, Extent(address, 0)) == b""
    assert memory.tags(KEY, [(8, extent), (1, Extent(0, 0)), (7, extent)]) == [tag(KEY, 8), b"", one]
    for module in (hbm_module, pieces):
        monkeypatch.setattr(module, "PIECE", 4096)
    parts = tag(KEY, 7)
    assert parts == b"".join(
        AESGCM(KEY).encrypt(
            (7).to_bytes(8, "big") + part.to_bytes(4, "big"), b"", data[part * 4096 : (part + 1) * 4096]
        )
        for part in range(4)
    )
    memory.write(address, data[4096:8192] + data[:4096])  # two parts change places
    assert tag(KEY, 7)[:32] not in (parts[:32], parts[16:32] + parts[:16])
    memory.close()
