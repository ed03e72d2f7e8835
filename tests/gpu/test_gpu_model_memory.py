"""The model's memory: checkpoints, export, measurement, and that nothing changed is ever launched or rolled back to."""

from __future__ import annotations

import os
from dataclasses import replace
from typing import Any

import pytest

from gpu_agent.hardware import commands_transfer
from orchestrator.gpu_session.export import _groups
from shared.claims.layout import Placed
from shared.claims.program import TensorSpec
from shared.claims.training import SGD, TrainingOptions
from shared.names import RegionKind
from shared.wire import gpu, gpu_answers
from tests.adversary.rows import attack
from tests.gpu.gpu_training import DATA, committed_visit, state_of
from tests.gpu.gpu_world import (
    SGD_OPTIONS,
    World,
    model_region,
)
from tests.gpu.test_gpu_private import PRIVACY


def _checkpoint(world: World, key: bytes, name: str) -> tuple[gpu_answers.CheckpointPart, list[bytes]]:
    part = world.run(gpu.Checkpoint(key=key, name=name, length=1 << 20))[0]
    return part, world.bulk


@pytest.mark.parametrize("options", [None, SGD_OPTIONS], ids=["adamw", "sgd without moments"])
def test_a_checkpoint_restores_a_wiped_gpu_bit_for_bit(world: World, options: TrainingOptions | None) -> None:
    changes = {} if options is None else {"options": options}
    world.set_up(**changes)
    committed = committed_visit(world, DATA, "w1", 0)
    key = os.urandom(32)
    part, chunks = _checkpoint(world, key, "c1")
    before = state_of(world)
    assert (part.model, part.step, part.length) == (committed.model, 4, part.total)
    assert before == (part.model, part.optimiser, 4, 0)
    model = world.region(RegionKind.MODEL)
    plain = bytes(world.hbm.view(model.address, 64))
    assert all(plain[:16] not in chunk for chunk in chunks)
    assert _checkpoint(world, key, "c1")[1] == chunks  # a repeat gives the same bytes
    committed_visit(world, DATA, "w2", 4)
    expected = state_of(world)
    assert world.refused(gpu.Checkpoint(key=key, name="c1", length=1 << 20)) == "checkpoint-key-reused"

    world.set_up(**changes)
    fields = {"key": key, "name": "c1", "offset": 0, "length": part.length, "records": len(chunks), "last": True}
    wrong = gpu.Restore(**fields, model="00" * 32, optimiser=part.optimiser)
    assert world.refused(wrong, bulk=chunks) == "checkpoint-digest-mismatch"
    flipped = [chunks[0][:-1] + bytes([chunks[0][-1] ^ 1]), *chunks[1:]]
    right = gpu.Restore(**fields, model=part.model, optimiser=part.optimiser)
    assert world.refused(right, bulk=flipped) == "tag-mismatch"
    restored = world.run(right, bulk=chunks)[0]
    assert (restored.model, restored.optimiser, restored.step, restored.batches) == before
    committed_visit(world, DATA, "w2", 4)
    assert state_of(world) == expected


@pytest.mark.parametrize(
    "changes", [{}, {"accumulate": "tour"}, {"privacy": PRIVACY}], ids=["plain", "accumulated", "private"]
)
@pytest.mark.parametrize("earlier", [0, 1], ids=["first of a commit", "second of it"])
def test_a_changed_committed_copy_is_neither_sealed_nor_exported(
    world: World, changes: dict[str, Any], earlier: int
) -> None:
    """A checkpoint of it would count as good until somebody needs it."""
    world.set_up(**changes)
    committed_visit(world, DATA, "w1", 0)
    for number in range(earlier):
        _checkpoint(world, os.urandom(32), f"c{number}")
    _flip_both(world)
    assert world.refused(gpu.Checkpoint(key=os.urandom(32), name="late", length=1 << 20)) == "committed-copy-changed"
    assert world.bulk == [], "nothing of it leaves"
    assert world.refused(gpu.Export(offset=0, length=world.region(RegionKind.MODEL).length)) == "committed-copy-changed"
    assert world.bulk == []
    _flip_both(world)
    _checkpoint(world, os.urandom(32), "late")


@pytest.mark.parametrize("place", ["model", "optimiser"])
def test_a_bit_that_flips_in_the_committed_copy_alone_is_put_right_before_it_is_read(world: World, place: str) -> None:
    """L8: what was committed lies in memory twice, and one copy that still reads as it was will do."""
    world.set_up()
    committed_visit(world, DATA, "w1", 0)
    model, key = world.device._state.model, os.urandom(32)
    clean = _checkpoint(world, key, "c1")
    world.run(export := gpu.Export(offset=0, length=world.region(RegionKind.MODEL).length))
    exported = world.bulk
    cell = world.hbm.view(model.committed_copy.address + (0 if place == "model" else model.plan.model.length), 1)
    cell[0] ^= 1
    assert _checkpoint(world, key, "c1") == clean, "sealed as if nothing had been"
    cell[0] ^= 1
    world.run(export)
    assert world.bulk == exported
    cell[0] ^= 1
    before = world.measure()
    assert world.run(gpu.RollBack())[0].model == clean[0].model
    assert world.measure() == before


def test_a_bit_that_flips_before_the_first_checkpoint_of_a_commit_is_not_hashed(world: World) -> None:
    """The optimiser's digest is worked out of the committed copy only then."""
    world.set_up()
    committed_visit(world, DATA, "w1", 0)
    model = world.device._state.model
    world.hbm.view(model.committed_copy.address + model.plan.model.length, 1)[0] ^= 1
    part, _ = _checkpoint(world, os.urandom(32), "c1")
    assert (part.model, part.optimiser) == (world.measure().model, world.measure().optimiser)


def _flip_both(world: World) -> None:
    """A bit of the committed copy and of the working one: nothing is left that it could be made from."""
    for address in (world.device._state.model.committed_copy.address, world.region(RegionKind.MODEL).address):
        world.hbm.view(address, 1)[0] ^= 1


def test_what_leaves_in_parts_is_held_against_the_commit_at_its_end(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(commands_transfer, "CHUNK", 1024)
    world.set_up()
    committed_visit(world, DATA, "w1", 0)
    model = world.device._state.model
    key, total, whole = os.urandom(32), model.committed_bytes, model.plan.model.length
    first, last = (0, 1024), ((total - 1) // 1024 * 1024, 1024)
    world.run(gpu.Checkpoint(key=key, name="c1", offset=first[0], length=first[1]))
    world.run(gpu.Export(offset=0, length=64))
    world.hbm.view(model.committed_copy.address, 1)[0] ^= 1
    assert world.refused(gpu.Checkpoint(key=key, name="c1", offset=last[0], length=last[1])) == "committed-copy-changed"
    assert world.refused(gpu.Export(offset=64, length=whole - 64)) == "committed-copy-changed"


@pytest.mark.parametrize("empty", [False, True])
def test_a_model_read_tensor_by_tensor_is_held_against_the_commit_at_its_end(world: World, empty: bool) -> None:
    """As the orchestrator reads it, nobody reads what the region has behind its last tensor; nor one that is `empty` there."""
    world.set_up()
    committed_visit(world, DATA, "w1", 0)
    model = world.device._state.model
    if empty:
        none = Placed(TensorSpec(name="none", dtype="float32", shape=(0,)), model.plan.model.length, 0)
        tensors = (*model.plan.model.tensors, none)
        model.plan = replace(model.plan, model=replace(model.plan.model, tensors=tensors))
    *parts, last = [part for group in _groups(model.plan.model) for part in group]
    assert sum(last) < model.plan.model.length
    for offset, length in parts:
        world.run(gpu.Export(offset=offset, length=length))
    world.hbm.view(model.committed_copy.address, 1)[0] ^= 1
    assert world.refused(gpu.Export(offset=last[0], length=last[1])) == "committed-copy-changed"
    assert world.bulk == []


def test_a_checkpoints_key_is_of_one_step_even_if_no_byte_of_the_state_moved(world: World) -> None:
    """The step is sealed with the state: under one name two plaintexts would share a key and an IV (law L4)."""
    still = SGD_OPTIONS.model_copy(update={"optimizer": SGD(lr=1e-30)})
    world.set_up(options=still)
    key = os.urandom(32)
    part, _ = _checkpoint(world, key, "k_1")
    committed_visit(world, DATA, "w1", 0, steps=3)
    assert state_of(world)[:3] == (part.model, part.optimiser, 3)
    assert world.refused(gpu.Checkpoint(key=key, name="k_1", length=1 << 20)) == "checkpoint-key-reused"


def test_the_committed_model_is_exported_as_its_region_lies(world: World) -> None:
    world.set_up()
    length = world.region(RegionKind.MODEL).length
    world.run(gpu.Export(offset=0, length=length))
    assert b"".join(world.bulk) == model_region(length)
    world.run(gpu.Export(offset=64, length=64))
    assert b"".join(world.bulk) == model_region(length)[64:128]
    assert world.refused(gpu.Export(offset=64, length=length)) == "out-of-range"


def test_what_lies_in_memory_is_measured_and_a_change_is_seen(world: World) -> None:
    world.set_up()
    clean = world.measure()
    for kind, name in ((RegionKind.CODE, "code"), (RegionKind.MODEL, "model"), (RegionKind.OPTIMISER, "optimiser")):
        cell = world.hbm.view(world.region(kind).address, 1)
        cell[0] ^= 1
        changed = world.measure()
        assert [f for f in ("code", "model", "optimiser", "control") if getattr(changed, f) != getattr(clean, f)] == [
            name
        ]
        cell[0] ^= 1
    assert world.measure() == clean


def _control(world: World) -> memoryview:
    known = {(r.address) for r in world.regions}
    (address,) = [start for start, _ in world.hbm.allocated() if start not in known]
    return world.hbm.view(address, 64)


@attack("H06", scoped="stopped: code and control structures are measured before a launch")
@pytest.mark.parametrize("what", ["code", "control"])
def test_a_changed_descriptor_or_program_launches_nothing(world: World, what: str) -> None:
    world.set_up()
    holder = world.visit(DATA)
    cell = world.hbm.view(world.region(RegionKind.CODE).address, 64) if what == "code" else _control(world)
    cell[9] ^= 1
    assert world.refused(world.train_command(holder)) == f"{what}-digest-mismatch"
    cell[9] ^= 1
    assert world.train(holder).state == "done"


def test_a_changed_committed_copy_is_never_rolled_back_to(world: World) -> None:
    world.set_up()
    world.train(world.visit(DATA))
    world.hbm.view(world.region(RegionKind.COMMITTED).address, 1)[0] ^= 1
    assert world.refused(gpu.RollBack()) == "committed-copy-changed"
