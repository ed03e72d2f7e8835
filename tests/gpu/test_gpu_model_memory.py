"""The model's memory: checkpoints, export, measurement, and that nothing changed is ever launched or rolled back to."""

from __future__ import annotations

import os

import pytest

from shared.claims.training import TrainingOptions
from shared.names import RegionKind
from shared.wire import gpu, gpu_answers
from tests.adversary.rows import attack
from tests.gpu.gpu_training import DATA, committed_visit, state_of
from tests.gpu.gpu_world import (
    SGD_OPTIONS,
    World,
    model_region,
)


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
