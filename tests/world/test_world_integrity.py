"""What is wrong inside the GPU or in a holder's data: found before it counts, rolled back, and the session goes on or says why not."""

from __future__ import annotations

import asyncio
import contextvars
from dataclasses import replace
from typing import Any

import httpx2
import numpy as np
import pytest

from data_holder.catalogue import Catalogue
from data_holder.datasets import InspectionReport
from gpu_agent.hardware import command_processor, commands_transfer
from gpu_agent.unit import GpuUnit
from orchestrator.gpu_session import checkpoints
from orchestrator.gpu_session.checkpoints import Checkpoints, Sealed
from orchestrator.gpu_session.life import GpuLife
from orchestrator.runner.pace import CheckpointPace
from orchestrator.visits import returning
from shared.names import ORCHESTRATOR_PORT, RegionKind
from shared.wire import gpu as wire
from tests.adversary.rows import attack
from tests.world.world import NewWorld, World
from tests.world.world_faults import crash
from tests.world.world_material import HOLDERS, RECORDS, ROUNDS, rows
from tests.world.world_recording import Recording
from tests.world.world_wire import Call, Deliver

VISITS = len(HOLDERS) * ROUNDS


async def restarted(world: World) -> None:
    """The orchestrator, over the same files."""
    await crash(world, "orchestrator")()


def _tamper(world: World, unit: GpuUnit, kind: RegionKind, at: int = 2) -> list[int]:
    """Flip one bit of every region of a kind while the GPU is at a holder for the `at`-th time."""
    done: list[int] = []
    switches = 0

    async def flip(call: Call, deliver: Deliver) -> httpx2.Response:
        nonlocal switches
        if call.link == ("orchestrator", "platform") and b'"holder-' in call.body:
            switches += 1
            if switches == at:
                for region in unit.device._state.regions.all(kind):
                    unit.device._hbm.view(region.address, region.length)[region.length // 3] ^= 1
                    done.append(region.handle)
        return await deliver(call)

    world.wire.hooks.append(flip)
    return done


@attack("H04", scoped="stopped: read-back, quarantine, roll-back bit for bit")
@pytest.mark.parametrize("kind", [RegionKind.MODEL, RegionKind.OPTIMISER])
async def test_a_model_changed_while_away_is_rolled_back(
    world: World, unit: GpuUnit, recorded: Recording, kind: RegionKind
) -> None:
    """L8: quarantined, restored from the committed copy, repeated, all of it in the log. (Other regions: tests/laws.)"""
    done = _tamper(world, unit, kind)
    session = await world.submit()
    view = await world.completed(session)
    assert done
    visits = await world.visits(session)
    assert [v["outcome"] for v in visits if v["index"] == 2] == ["quarantined", "closed"]
    assert view["model"]["digest"] == recorded.view["model"]["digest"]
    assert any("quarantined" in event for event in await world.events(session))


async def test_tries_that_ended_otherwise_are_no_breaks_of_integrity(
    world: World, unit: GpuUnit, recorded: Recording
) -> None:
    """The first stop is interrupted twice by the orchestrator's restart, and then the memory is changed: once, which is undone."""
    outside = contextvars.copy_context()
    restarts = list[asyncio.Task[None]]()

    async def restart(call: Call, deliver: Deliver) -> httpx2.Response:
        answer = await deliver(call)
        if call.link == ("orchestrator", "platform") and b'"holder-' in call.body:
            tried = sum(b'"holder-' in e.call.body for e in world.wire.calls("orchestrator", "platform"))
            if tried in (1, 2):
                restarts.append(asyncio.get_running_loop().create_task(restarted(world), context=outside.copy()))
                await asyncio.sleep(0.05)
        return answer

    world.wire.hooks.append(restart)
    done = _tamper(world, unit, RegionKind.MODEL, at=3)
    session = await world.submit()
    view = await world.completed(session)
    assert (len(restarts), bool(done)) == (2, True)
    outcomes = [v["outcome"] for v in await world.visits(session) if v["index"] == 1]
    assert outcomes == ["recalled", "recalled", "quarantined", "closed"]
    assert view["model"]["digest"] == recorded.view["model"]["digest"]


async def test_a_broken_committed_copy_fails_the_session(world: World, unit: GpuUnit) -> None:
    """With both copies wrong there is nothing to go back to: the session stops, no model is released, and the GPU is wiped."""

    done = _tamper(world, unit, RegionKind.MODEL) + _tamper(world, unit, RegionKind.COMMITTED)
    session = await world.submit()
    view = await world.finish(session)
    assert view["phase"] == "FAILED", done
    assert view["model"] is None
    assert view["failure"]["code"] == "committed-copy-changed"
    for _ in range(1000):  # the fact is told before the act
        if not unit.device._hbm.allocated():
            break
        await asyncio.sleep(0.01)
    assert unit.device._hbm.allocated() == []


async def test_a_bit_that_flips_in_the_committed_copy_costs_no_session(
    world: World, unit: GpuUnit, recorded: Recording, monkeypatch: pytest.MonkeyPatch
) -> None:
    """L8: the working copy still is what was committed; the checkpoint is made of that."""
    write, flipped = Checkpoints.write, list[int]()

    async def behind_a_flip(self: Checkpoints, life: GpuLife, name: str, validation: float | None) -> Sealed:
        if not flipped:
            at = unit.device._state.model.committed_copy.address
            unit.device._hbm.view(at, 1)[0] ^= 1
            flipped.append(at)
        return await write(self, life, name, validation)

    monkeypatch.setattr(CheckpointPace, "due", lambda *_: True)
    monkeypatch.setattr(Checkpoints, "write", behind_a_flip)
    session = await world.submit()
    view = await world.completed(session)
    assert flipped
    assert {v["outcome"] for v in await world.visits(session)} == {"closed"}
    assert view["model"]["digest"] == recorded.view["model"]["digest"]


@pytest.mark.parametrize("kind", [wire.Checkpoint, wire.Export])
async def test_a_bit_that_flips_while_the_model_is_read_out_costs_no_session(
    world: World, unit: GpuUnit, recorded: Recording, monkeypatch: pytest.MonkeyPatch, kind: type
) -> None:
    """L8: what was read so far is thrown away, and it is read once more, of the copy that is whole."""
    entry, flipped = command_processor.COMMANDS[kind], list[int]()

    def then_a_flip(state: Any, asked: Any, bulk: Any) -> Any:
        answer = entry.handler(state, asked, bulk)
        if asked.offset == 0 and not flipped:
            flipped.append(state.model.committed_copy.address)
            state.model._hbm.view(flipped[0], 1)[0] ^= 1
        return answer

    monkeypatch.setitem(command_processor.COMMANDS, kind, replace(entry, handler=then_a_flip))
    monkeypatch.setattr(commands_transfer, "CHUNK", 512)
    monkeypatch.setattr(checkpoints, "BATCH_BYTES", 2048)
    monkeypatch.setattr(CheckpointPace, "due", lambda *_: True)
    session = await world.submit()
    view = await world.completed(session)
    assert flipped
    assert {v["outcome"] for v in await world.visits(session)} == {"closed"}
    assert view["model"]["digest"] == recorded.view["model"]["digest"]


@attack("H21", scoped="stopped: range checks in the GPU before a step")
async def test_a_record_out_of_range_is_refused_in_the_gpu(
    world: World, monkeypatch: pytest.MonkeyPatch, recorded: Recording
) -> None:
    """The holder's own check is bypassed: the GPU refuses before a step, the model is unchanged, the visit ends rejected."""
    path = world.folder / "holder-city" / "ehr.npz"
    features, label = rows(RECORDS, 0)
    label[10] = 99  # in the first visit's records, not in the second's
    np.savez(path, features=features, label=label)
    inspect = Catalogue.inspect

    async def blind(self: Catalogue, name: str, program: Any) -> InspectionReport:
        return replace(await inspect(self, name, program), fits=True)

    monkeypatch.setattr(Catalogue, "inspect", blind)
    session = await world.submit()
    view = await world.completed(session)
    first, *rest = await world.visits(session)
    assert first["outcome"] == "rejected"
    assert "out-of-range" in first["reason"]
    assert "99" not in first["reason"]
    assert {v["outcome"] for v in rest} == {"closed"}
    assert view["step"] == len(rest) * 3
    receipts = await world.owner.items(f"sessions/{session}/receipts")
    assert [r["outcome"] for r in receipts][:2] == ["rejected", "closed"]


async def test_gpu_memory_that_is_too_small_is_a_clear_failure(new_world: NewWorld) -> None:
    """Where the agent says that there is more than there is, the GPU itself has the last word."""
    small = {"agent": {"hbm_bytes": 1 << 20}}

    async def boast(call: Call, deliver: Deliver) -> httpx2.Response:
        answer = await deliver(call)
        if call.link == ("orchestrator", "agent") and "memory_bytes" in answer.text:
            return httpx2.Response(200, json={**answer.json(), "memory_bytes": 1 << 40})
        return answer

    async with new_world(own_gpu=True, settings=small, holders=("city",)) as world:
        world.wire.hooks.append(boast)
        session = await world.submit(buffer_bytes=1 << 24)
        view = await world.finish(session)
        assert view["phase"] == "FAILED"
        assert view["failure"]["code"] == "gpu-out-of-memory"
        assert "fit" in view["failure"]["detail"]
        assert not world.wire.calls("holder-city", "agent", "/copy")


@pytest.mark.parametrize("undone", [False, True], ids=["never-made", "undone"])
async def test_a_platform_that_lies_about_the_mux_only_costs_time(
    world: World, unit: GpuUnit, recorded: Recording, monkeypatch: pytest.MonkeyPatch, undone: bool
) -> None:
    """The MUX is trusted by nothing: a switch that is claimed and not made, or undone behind the orchestrator's back, delays the visit and
    changes no result. The orchestrator looks where the GPU is, so that no lease has to end for it and no holder is blamed."""
    monkeypatch.setattr(returning, "LOOK_S", 0.1)
    lies = 3

    async def lie(call: Call, deliver: Deliver) -> httpx2.Response:
        nonlocal lies
        if call.link != ("orchestrator", "platform") or b'"holder-' not in call.body or not lies:
            return await deliver(call)
        lies -= 1
        if not undone:
            return httpx2.Response(200, json={"gpu": "gpu-0", "port": "holder-city", "switches": 1})
        answer = await deliver(call)
        unit.mux.bind(ORCHESTRATOR_PORT)
        return answer

    world.wire.hooks.append(lie)
    session = await world.submit()
    view = await world.completed(session)
    assert lies == 0
    assert [visit["outcome"] for visit in await world.visits(session)] == ["closed"] * VISITS
    assert view["model"]["digest"] == recorded.view["model"]["digest"]
