"""What was committed is copied once that was answered, and lies apart before anything may write over it."""

from __future__ import annotations

from typing import Any

import pytest

from shared.errors import VerificationFailed
from shared.names import RegionKind
from shared.wire import gpu
from shared.wire.gpu_answers import Committed
from tests.gpu.gpu_training import DATA
from tests.gpu.gpu_world import RECORD_BYTES, World
from tests.gpu.test_gpu_paper import PAPER, fence_and_sweep, install


def _committed(world: World) -> Committed:
    """What a visit left, and the GPU has answered; nothing was done ahead since."""
    holder = world.visit(DATA)
    assert world.train(holder, "w1", 4, 0).state == "done"
    world.device.look_ahead()
    committed, *_ = world.run(gpu.Commit(work="w1"), gpu.Scrub(region=holder.grant.region))
    return committed  # type: ignore[no-any-return]  # answers are a union that tests know


@pytest.mark.parametrize("kind", [RegionKind.MODEL, RegionKind.OPTIMISER])
@pytest.mark.parametrize("after", ["look ahead", "commit"])
def test_what_changed_since_it_was_hashed_is_never_taken_for_committed(
    world: World, kind: RegionKind, after: str
) -> None:
    world.set_up()
    holder = world.visit(DATA)
    assert world.train(holder, "w1", 4, 0).state == "done"
    world.device.look_ahead()
    ahead = world.device._state.model._trained
    assert ahead is not None
    if after == "look ahead":
        world.hbm.view(world.region(kind).address, 1)[0] ^= 1
    committed = world.run(gpu.Commit(work="w1"))[0]
    assert committed == ahead.digests.told()
    if after == "commit":
        world.hbm.view(world.region(kind).address, 1)[0] ^= 1
    with pytest.raises(VerificationFailed, match="changed since it was committed"):
        world.device.look_ahead()
    measured = world.measure()
    assert (measured.model, measured.version) != (committed.model, committed.version)
    assert world.refused(gpu.RollBack()) == "committed-copy-changed"
    world.run(gpu.Scrub(region=holder.grant.region))
    again = world.visit(DATA)
    assert world.refused(world.train_command(again, "w2", first=4)) == "committed-copy-changed"
    world.hbm.view(world.region(kind).address, 1)[0] ^= 1
    assert world.run(gpu.RollBack())[0].model == committed.model, "it is looked at again, whenever it is needed"


def test_what_was_committed_lies_apart_before_anything_is_launched(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    world.set_up()
    committed = _committed(world)
    model, launched = world.device._state.model, []
    assert model._owed
    assert world.device.has_work_ahead
    start = type(world.compute).start

    def started(compute: Any, descriptor: Any) -> None:
        launched.append((model._owed, model._memory.digests(model._kept, 4, optimiser=False).model))
        start(compute, descriptor)

    monkeypatch.setattr(type(world.compute), "start", started)
    assert world.train(world.visit(DATA), "w2", first=4).state == "done"
    assert launched == [(False, committed.model)]
    assert world.run(gpu.RollBack())[0].model == committed.model


@pytest.mark.parametrize("settle", [True, False])
def test_roll_back_and_export_need_no_copy_made_before(world: World, settle: bool) -> None:
    world.set_up()
    committed = _committed(world)
    model = world.device._state.model
    if settle:
        world.device.look_ahead()
    assert model._owed is not settle
    whole = bytes(model.read_committed(0, model.committed_bytes))
    assert whole == bytes(world.hbm.view(model.committed_copy.address, model.committed_bytes))
    assert world.run(gpu.RollBack())[0].model == committed.model
    assert not model._owed


def test_where_a_key_to_all_of_memory_may_come_it_is_copied_before_the_answer(world: World) -> None:
    world.set_up(**PAPER)
    holder = install(world)
    assert holder.send(DATA[: 32 * RECORD_BYTES]).published
    fence_and_sweep(world, holder)
    assert world.train(holder, steps=2).state == "done"
    world.device.look_ahead()
    model = world.device._state.model
    assert model._trained is not None
    committed = world.run(gpu.Commit(work="w1"))[0]
    assert not model._owed
    assert model._memory.digests(model._kept, 2).model == committed.model
