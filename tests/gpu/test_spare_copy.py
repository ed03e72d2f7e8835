"""Two places for committed copies: a commit exchanges them, and behind it one flipped bit costs no model (law L8)."""

from __future__ import annotations

import os
from collections.abc import Sequence

import pytest

from gpu_agent.hardware import allotment
from gpu_agent.hardware.address_space import PAGE, pages
from gpu_agent.hardware.hbm import HBM, Extent
from shared.errors import OutOfMemory
from shared.names import RegionKind
from shared.wire import gpu, gpu_answers
from tests.gpu.gpu_holder import Holder
from tests.gpu.gpu_training import DATA, committed_visit, state_of
from tests.gpu.gpu_world import World, make_world
from tests.gpu.test_gpu_paper import PAPER


def _trained(world: World, work: str = "w1", first_step: int = 0) -> Holder:
    holder = world.visit(DATA)
    assert world.train(holder, work, 4, first_step).state == "done"
    return holder


def _places(world: World) -> list[int]:
    """Addresses of committed copies, the one that counts first."""
    counts = world.device._state.model.committed_copy.address
    places = [region.address for region in world.regions if region.kind is RegionKind.COMMITTED]
    return sorted(places, key=lambda address: address != counts)


def _flip(world: World, address: int) -> None:
    world.hbm.view(address, 1)[0] ^= 1


def _ahead(world: World, work: str, first_step: int) -> gpu_answers.Committed:
    """A visit whose commit was prepared."""
    holder = _trained(world, work, first_step)
    world.device.look_ahead()
    committed: gpu_answers.Committed = world.run(gpu.Commit(work=work), gpu.Scrub(region=holder.grant.region))[0]
    return committed


def test_a_prepared_commit_reads_and_writes_no_model(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    world.set_up()
    first = _places(world)
    assert len(first) == 2
    holder = _trained(world)
    world.device.look_ahead()
    touched: list[str] = []
    copy, tags = HBM.copy, HBM.tags

    def copied(self: HBM, moves: Sequence[tuple[int, int, int]]) -> None:
        touched.append("copy")
        copy(self, moves)

    def tagged(self: HBM, key: bytes, extents: Sequence[tuple[int, Extent]]) -> list[bytes]:
        touched.append("tags")
        return tags(self, key, extents)

    monkeypatch.setattr(HBM, "copy", copied)
    monkeypatch.setattr(HBM, "tags", tagged)
    committed = world.run(gpu.Commit(work="w1"), gpu.Scrub(region=holder.grant.region))[0]
    assert touched == []
    assert _places(world) == first[::-1]
    measured = world.measure()
    assert touched == ["tags"]
    assert (measured.model, measured.version) == (committed.model, committed.version)
    world.run(gpu.RollBack())
    assert touched == ["tags", "tags", "copy", "tags"], "both copies are as they were committed"


def test_a_prepared_commit_is_the_same_as_another() -> None:
    states = []
    for prepared in (True, False):
        world = make_world()
        try:
            world.set_up()
            commit = _ahead if prepared else lambda world, work, step: committed_visit(world, DATA, work, step)
            for number in range(3):
                commit(world, f"w{number}", 4 * number)
            states.append(state_of(world))
        finally:
            world.device.close()
    assert states[0] == states[1]


@pytest.mark.parametrize("which", ["working", "counts", "spare"])
def test_a_bit_that_flips_before_the_commit_costs_nothing_that_was_committed(world: World, which: str) -> None:
    """Until then the session may go back; what was looked at is what is committed."""
    world.set_up()
    before = _ahead(world, "w1", 0)
    _trained(world, "w2", 4)
    world.device.look_ahead()
    looked_at = world.device._state.model._trained
    assert looked_at is not None
    _flip(world, {"working": world.region(RegionKind.MODEL).address, "counts": _places(world)[0],
                  "spare": _places(world)[1]}[which])  # fmt: skip
    if which != "counts":
        assert world.run(gpu.RollBack())[0].model == before.model
        return
    committed = world.run(gpu.Commit(work="w2"))[0]
    assert committed.model == looked_at.digests.model
    assert world.run(gpu.RollBack())[0].model == committed.model


def test_what_changes_after_it_was_looked_at_is_found_and_goes(world: World) -> None:
    world.set_up()
    holder = _trained(world)
    world.device.look_ahead()
    clean = world.measure().model
    _flip(world, world.region(RegionKind.MODEL).address)
    committed = world.run(gpu.Commit(work="w1"), gpu.Scrub(region=holder.grant.region))[0]
    assert committed.model == clean
    assert world.measure().model != clean
    assert world.run(gpu.RollBack())[0].model == clean
    assert world.measure().model == clean


@pytest.mark.parametrize("which", ["working", "counts", "spare"])
def test_a_bit_that_flips_behind_the_commit_costs_no_session(world: World, which: str) -> None:
    world.set_up()
    committed = _ahead(world, "w1", 0)
    _flip(world, {"working": world.region(RegionKind.MODEL).address, "counts": _places(world)[0],
                  "spare": _places(world)[1]}[which])  # fmt: skip
    assert (world.measure().model != committed.model) == (which == "working")
    assert world.run(gpu.RollBack())[0].model == committed.model
    assert world.measure().model == committed.model
    after = _ahead(world, "w2", 4)
    assert world.measure().model == after.model
    assert world.run(gpu.RollBack())[0].model == after.model


def test_a_changed_copy_that_counts_is_never_rolled_back_to(world: World) -> None:
    world.set_up()
    _ahead(world, "w1", 0)
    _flip(world, _places(world)[0])
    _flip(world, world.region(RegionKind.MODEL).address)
    assert world.refused(gpu.RollBack()) == "committed-copy-changed"


def test_a_further_life_goes_on_with_the_copy_that_counts(world: World) -> None:
    world.set_up()
    committed = _ahead(world, "w1", 0)
    world.resume()
    assert world.run(gpu.RollBack())[0].model == committed.model


@pytest.mark.parametrize("how", ["rejected", "a new life", "committed otherwise"])
def test_what_was_copied_ahead_of_a_commit_that_does_not_come_is_erased(world: World, how: str) -> None:
    """It learnt from records of a visit that counts for nothing, and the scrub of that visit is signed for (law L7)."""
    world.set_up()
    holder, model = _trained(world), world.device._state.model
    world.device.look_ahead()
    counts, ahead = _places(world)
    length = model.committed_bytes
    copied = bytes(world.hbm.view(ahead, length))
    assert any(copied)
    if how == "rejected":
        answers = world.run(
            gpu.RollBack(), gpu.Scrub(region=holder.grant.region), gpu.CloseVisit(visit=holder.grant.visit)
        )
        assert isinstance(answers[-1], gpu_answers.Statement)
        assert model.committed_copy.address == counts
    elif how == "a new life":
        world.resume()
    else:  # as if it had not been looked at since: the commit copies again, and to the place that counts
        model._trained = None
        world.run(gpu.Commit(work="w1"), gpu.Scrub(region=holder.grant.region))
        assert bytes(world.hbm.view(counts, length)) == copied
    assert not any(world.hbm.view(ahead, length))


@pytest.mark.parametrize("why", ["a key to all of memory", "memory is dear"])
def test_there_is_one_place_only(world: World, monkeypatch: pytest.MonkeyPatch, why: str) -> None:
    if why == "memory is dear":
        monkeypatch.setattr(allotment, "SPARE_SHARE", 1 << 60)
        world.set_up()
    else:
        world.set_up(**PAPER)
    assert len(_places(world)) == 1


def test_where_what_is_left_lies_in_pieces_one_place_will_do(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    world.set_up()
    plan, config, memory = world.device._state.model.plan, world.device._state.config, HBM(1 << 30, os.urandom)
    needed, allocate, asked = len(allotment.allot(HBM(1 << 30, os.urandom), plan, config).all()) - 1, HBM.allocate, []

    def pieces(self: HBM, length: int) -> int:
        asked.append(length)
        if len(asked) > needed:
            raise OutOfMemory("no gap of that length is left")
        return allocate(self, length)

    monkeypatch.setattr(HBM, "allocate", pieces)
    made = allotment.allot(memory, plan, config)
    assert (made.spare, len(made.all()), len(asked)) == (None, needed, needed + 1)


def test_a_spare_place_takes_an_eighth_of_what_is_left_at_most(world: World) -> None:
    world.set_up()
    plan, config, memory = world.device._state.model.plan, world.device._state.config, HBM(1 << 30, os.urandom)
    length = plan.model.length + plan.optimiser.length
    assert allotment.allot(memory, plan, config).spare is not None
    enough = memory.used - pages(length) + pages(length * allotment.SPARE_SHARE)
    for backing, there in ((enough, True), (enough - PAGE, False)):
        made = allotment.allot(HBM(1 << 30, os.urandom, backing), plan, config)
        assert (made.spare is not None) is there
