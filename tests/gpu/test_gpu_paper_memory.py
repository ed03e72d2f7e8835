"""Travel mode `paper` and every byte of memory: between a closing record's readings, between tensors, and behind the host's."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from gpu_agent.hardware import hbm as hbm_module
from gpu_agent.hardware.address_space import PAGE, pages, whole_pages
from gpu_agent.hardware.compute import Launch
from gpu_agent.hardware.hbm import Extent
from gpu_agent.hardware.model_memory import ModelPhase
from shared.claims.layout import ALIGN, RegionPlan, require_named
from shared.claims.visit import CursorRange
from shared.names import RegionKind
from shared.protocol.record_order import records_of
from shared.wire import gpu
from shared.wire.stock import CopyMemory, LaunchProgram, Span, WriteMemory
from tests.gpu.gpu_world import OPTIONS, RECORD_BYTES, World, records
from tests.gpu.test_gpu_paper import PAPER, Attacker, attacker, fence_and_sweep, install

__all__ = ["attacker"]
DATA = records(32)
HIDDEN = b"hidden by a holder"


# ------------------------------------------------------------------ what was published is what is trained on


def test_data_changed_while_they_are_published_are_not_trained_on(
    world: World, attacker: Attacker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """H14 by a launch of the holder's own, which writes as soon as the closing record's leaves are made: they are of what was approved."""
    holder, copies = attacker.holder, world.device._state.copies
    honest, address = copies.hash_leaves, world.region(RegionKind.DATASET).address + RECORD_BYTES

    def overtaken(salt: bytes, indexes: Sequence[int], data: memoryview) -> list[bytes]:
        leaves = honest(salt, indexes, data)
        world.hbm.poke(address, b"poison")
        return leaves

    monkeypatch.setattr(copies, "hash_leaves", overtaken)
    assert holder.send(DATA).published
    _, opened, _ = world.open_epoch(holder.grant.epoch)
    assert not opened.fenced[0].published
    assert opened.fenced[0].refusal == "the buffer changed after its closing record"
    world.run(gpu.Sweep())
    assert world.refused(world.train_command(holder)) == "wrong-records"


@pytest.mark.parametrize("order", ["sequential", "shuffled"])
def test_a_cursor_that_goes_round_its_dataset_is_found_unchanged(world: World, order: str) -> None:
    """It names a record twice, and so does what the fence works out again."""
    world.set_up(**PAPER)
    cursor = CursorRange.model_validate({"start": 5, "count": 32, "order": order, "seed": 3})
    holder = install(world, dataset=records(24), cursor=cursor)
    indexes = records_of(cursor, 24).tolist()
    holder.send(b"".join(records(24)[index * RECORD_BYTES : (index + 1) * RECORD_BYTES] for index in indexes))
    assert len(set(indexes)) < len(indexes)
    _, opened, _ = world.open_epoch(holder.grant.epoch)
    assert opened.fenced[0].published


# ------------------------------------------------------------------ bytes that belong to no tensor


def _gaps(world: World) -> list[int]:
    """The first byte behind a tensor of each copy, up to where the next one begins."""
    plan = world.device._state.model.plan
    starts = {
        RegionKind.MODEL: (0, plan.model), RegionKind.OPTIMISER: (0, plan.optimiser),
        RegionKind.COMMITTED: (plan.model.length, plan.optimiser),
    }  # fmt: skip
    found = [world.region(RegionKind.COMMITTED).address + _gap(plan.model)]
    return found + [world.region(kind).address + at + _gap(region) for kind, (at, region) in starts.items()]


def _gap(region: RegionPlan) -> int:
    ends = (one.offset + one.size_bytes for one in region.tensors)
    return next(end for end in ends if -end % ALIGN >= len(HIDDEN))


def test_what_was_hidden_between_tensors_is_gone_after_the_sweep_and_breaks_nothing(world: World) -> None:
    """H06: measurement is of tensors; a roll-back, and a commit, copy and compare every byte."""
    world.set_up(**PAPER)
    holder, before = install(world), world.measure()
    gaps = _gaps(world)
    for at in gaps:
        world.hbm.poke(at, HIDDEN)  # by stock firmware, whose write it is
    holder.send(DATA)
    swept = fence_and_sweep(world, holder)
    for at in gaps:
        assert not any(world.hbm.peek(at, len(HIDDEN))), at
    assert (swept.model, swept.optimiser) == (before.model, before.optimiser)
    assert world.run(gpu.RollBack())[0].model == before.model
    assert world.train(holder, steps=4).state == "done"
    world.run(gpu.Commit(work="w1"), gpu.Scrub(region=holder.grant.region))
    assert all(not any(world.hbm.peek(at, len(HIDDEN))) for at in gaps)


def test_what_was_hidden_in_a_page_that_the_control_structures_never_took_is_gone_after_the_sweep(
    world: World,
) -> None:
    """H06: their room is estimated before they are written, and may be a page too much."""
    world.set_up(**{**PAPER, "buffers": 45})
    control = world.device._state.session.control
    assert control is not None
    behind = control.address + pages(control.length)
    holder = install(world)
    world.hbm.view(behind, len(HIDDEN))  # it is part of the allocation, so no stray
    Attacker(holder).write(behind, HIDDEN)
    holder.send(DATA)
    before = world.device._state.control_digest()
    fence_and_sweep(world, holder)
    assert not any(world.hbm.peek(behind, len(HIDDEN)))
    assert world.device._state.control_digest() == before


def test_what_was_uploaded_between_tensors_is_no_part_of_the_model(world: World) -> None:
    """Else the first sweep would take what was committed for changed."""
    world.set_up(**PAPER)
    model, at = world.device._state.model, _gaps(world)[1]
    model.phase = ModelPhase.EMPTY  # as it is at the first commit
    world.hbm.write(at, HIDDEN)
    model.commit()
    assert not any(world.hbm.view(at, len(HIDDEN)))
    fence_and_sweep(world, install(world))
    assert world.run(gpu.RollBack())[0].model == model.require_committed().model


def test_what_a_checkpoint_carried_along_between_tensors_is_not_restored(world: World) -> None:
    world.set_up(**PAPER)
    model, known = world.device._state.model, world.device._state.model.named()
    at = _gaps(world)[0]
    model.write_committed(at - model.committed_copy.address, HIDDEN)
    model.accept_restored(known.model, require_named(known.optimiser), known.step)
    assert not any(world.hbm.view(at, len(HIDDEN)))
    fence_and_sweep(world, install(world))
    assert world.run(gpu.RollBack())[0].model == known.model


# ------------------------------------------------------------------ memory behind the addresses


class _Slow:
    """Compute that has not come to touch anything yet; what was launched on it."""

    def __init__(self) -> None:
        self.launched: list[Launch] = []

    def start(self, launch: Launch) -> None:
        self.launched.append(launch)


def _launch(data: Span, **spans: Span) -> LaunchProgram:
    nothing = Span(address=0, length=0)
    fields = dict.fromkeys(("code", "model", "gradients", "optimiser", "committed"), nothing) | spans
    return LaunchProgram(kind="train", data=data, records=1, steps=1, total_steps=1, options=OPTIONS, **fields)


SHORT = 64 << 20
"""Bytes that may still get memory behind them, here."""


@pytest.fixture
def compute(world: World, attacker: Attacker, monkeypatch: pytest.MonkeyPatch) -> _Slow:
    made = _Slow()
    monkeypatch.setattr(world.device._stock, "_compute", made)
    monkeypatch.setattr(world.hbm, "backing", _resident(world) + SHORT)
    return made


def _resident(world: World) -> int:
    """Bytes of addresses that have memory behind them."""
    return sum(end - start for start, end in hbm_module._resident(world.hbm.fd, 0, world.hbm.size))


def _apart(world: World) -> list[Span]:
    """Two stretches of addresses with nothing behind them. Each fits by itself, both together do not."""
    length, taken = SHORT * 6 // 10, world.hbm.allocated()
    spans = [Span(address=at, length=length) for at in range(0, world.hbm.size - length, 1 << 30)]
    free = [one for one in spans if not any(one.address < a + n and a < one.address + length for a, n in taken)]
    return free[:2]  # where allocations lie is drawn anew for each device


def test_a_launch_is_held_against_what_all_its_spans_would_take(
    world: World, attacker: Attacker, compute: _Slow
) -> None:
    """Compute touches every page of them, and asks nobody."""
    one, other = _apart(world)
    assert attacker.do(_launch(one, model=other)).code == "gpu-out-of-memory"
    assert attacker.do(_launch(one, code=Span(address=0, length=1), committed=other)).code == "gpu-out-of-memory"
    assert compute.launched == []
    inside = Span(address=one.address + 4096, length=one.length - 8192)
    assert attacker.do(_launch(one, model=inside, gradients=one)).code is None, "what is named twice is there once"
    assert len(compute.launched) == 1


def test_what_is_launched_over_is_spoken_for_before_it_is_touched(
    world: World, attacker: Attacker, compute: _Slow
) -> None:
    one, other = _apart(world)
    assert attacker.do(_launch(one)).code is None
    assert attacker.do(_launch(other)).code == "gpu-out-of-memory", "who was launched may still be at it"
    late = [WriteMemory(address=other.address + (at << 20), data=bytes(1 << 20)) for at in range(SHORT // 2 >> 20)]
    codes = [attacker.do(write).code for write in late]
    assert set(codes) == {None, "gpu-out-of-memory"}
    assert codes.count(None) << 20 <= SHORT - one.length
    copied = CopyMemory(target=other.address + other.length - (1 << 20), source=0, length=1 << 20)
    assert attacker.do(copied).code == "gpu-out-of-memory"
    assert _resident(world) + one.length <= world.hbm.backing
    fence_and_sweep(world, attacker.holder)
    following = Attacker(install(world))
    assert {following.do(write).code for write in late} == {None}, "of an older key's launch nothing is left"


def test_pages_count_whole_and_once() -> None:
    said = [Extent(PAGE - 1, 2), Extent(0, 0), Extent(5 * PAGE, 1), Extent(5 * PAGE + 9, PAGE), Extent(9 * PAGE, PAGE)]
    assert whole_pages(said) == [Extent(0, 2 * PAGE), Extent(5 * PAGE, 2 * PAGE), Extent(9 * PAGE, PAGE)]
    assert whole_pages([Extent(0, 10 * PAGE), Extent(PAGE, 1)]) == [Extent(0, 10 * PAGE)]
