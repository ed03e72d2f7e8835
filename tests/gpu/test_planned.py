"""What the compute parent works out for its workers: where tensors lie, as the last launch had it; a launch that differs has its own."""

from __future__ import annotations

import socket
from typing import Any

import pytest

from gpu_agent.compute import places, worker
from gpu_agent.compute.__main__ import Parent
from gpu_agent.compute.places import HostPlace
from gpu_agent.compute.planned import Planned, by_default, planned
from gpu_agent.hardware.address_space import pages
from gpu_agent.hardware.compute import Finished, Launch
from gpu_agent.hardware.hbm import Extent
from gpu_agent.hardware.shared_map import SharedMap
from gpu_agent.workload.loader import load_program
from shared.claims.layout import MemoryPlan, RegionPlan, plan_memory
from tests.gpu.gpu_world import OPTIONS, SGD_OPTIONS, manifest, program

STATED = OPTIONS.model_dump(mode="json")
OTHER = SGD_OPTIONS.model_dump(mode="json")


@pytest.mark.parametrize("accumulate", [False, True])
def test_it_is_the_plan_of_these_options_and_serves_no_others(accumulate: bool) -> None:
    known = planned(manifest(), STATED, accumulate)
    assert (known.options, known.plan) == (OPTIONS, plan_memory(manifest(), OPTIONS, accumulate))
    assert known.serves(dict(STATED), accumulate)
    assert not known.serves(STATED, not accumulate)
    assert not known.serves({**STATED, "seed": 8}, accumulate)


def test_a_program_that_nobody_launched_yet_is_planned_by_its_own_options() -> None:
    defaults = manifest().defaults
    assert by_default(manifest()).plan == plan_memory(manifest(), defaults)


def test_the_parent_plans_anew_only_for_another_launch() -> None:
    _, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    parent = Parent(SharedMap(-1, 4096), theirs, places.HOST)
    parent._programs["ab"] = load_program(program()[0])
    parent._planned["ab"] = by_default(manifest())
    first = parent._plan("ab", STATED, False)
    assert parent._plan("ab", dict(STATED), False) is first
    assert parent._plan("ab", OTHER, False).plan == plan_memory(manifest(), SGD_OPTIONS)
    assert parent._planned["ab"].options == SGD_OPTIONS


def trained(known: Planned | None) -> bytes:
    """The model region as one step on zeros leaves it."""
    plan = plan_memory(manifest(), OPTIONS)
    records = OPTIONS.batch_size * manifest().records.record_bytes
    model, gradients, optimiser, committed, data = _laid_out(
        plan.model.length, plan.gradients.length, plan.optimiser.length, plan.model.length, records
    )
    hbm = SharedMap(-1, data.address + pages(records))
    launch = Launch(
        kind="train", code=Extent(0, 0), code_digest="", model=model, gradients=gradients, optimiser=optimiser, committed=committed,
        data=data, records=OPTIONS.batch_size, first_step=0, steps=1, total_steps=1, options=dict(STATED),
    )  # fmt: skip
    assert worker.run(launch, load_program(program()[0]), HostPlace(hbm), lambda step, loss: None, known).steps == 1
    return bytes(hbm.view[: model.length])


def _laid_out(*lengths: int) -> list[Extent]:
    starts = [sum(map(pages, lengths[:index])) for index in range(len(lengths))]
    return [Extent(start, length) for start, length in zip(starts, lengths, strict=True)]


def test_a_worker_uses_what_serves_and_nothing_else(monkeypatch: pytest.MonkeyPatch) -> None:
    without = trained(None)
    assert any(without)
    nothing = RegionPlan((), 0)
    misleading = Planned(OTHER, False, SGD_OPTIONS, MemoryPlan(nothing, nothing, nothing))
    assert trained(misleading) == without, "of another launch"

    def again(*_: Any) -> Planned:
        raise AssertionError("planned twice")

    known = planned(manifest(), STATED, False)
    monkeypatch.setattr(worker, "planned", again)
    assert trained(known) == without


@pytest.mark.parametrize("accumulate", [False, True])
def test_a_worker_that_waits_warms_up_to_the_end(accumulate: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """What fails there is kept to itself, so that a program which zeros do not suit still starts."""
    run, done = worker.run, list[Finished]()
    monkeypatch.setattr(worker, "run", lambda *arguments: done.append(run(*arguments)))
    known = planned(manifest(), STATED, accumulate)
    worker.warm_up(load_program(program()[0]), known, HostPlace(SharedMap(-1, 4096)))
    assert [finished.steps for finished in done] == [1]
