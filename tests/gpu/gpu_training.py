"""One committed visit of the emulated GPU, for tests that train."""

from __future__ import annotations

import time
from pathlib import Path

from shared.wire import gpu, gpu_answers
from tests.gpu.gpu_world import (
    World,
    records,
)

DATA = records(64)


def committed_visit(world: World, data: bytes, work: str, first: int, steps: int = 4) -> gpu_answers.Committed:
    holder = world.visit(data)
    assert world.train(holder, work, steps, first).state == "done"
    committed, *_ = world.run(gpu.Commit(work=work), gpu.Scrub(region=holder.grant.region))
    return committed  # type: ignore[no-any-return]  # answers are a union that tests know


def state_of(world: World) -> tuple[str, str | None, int, int]:
    """What is committed, by digests of all of it: model, optimiser, step, batches."""
    named = world.device._state.model.named()
    return named.model, named.optimiser, named.step, named.batches


def workers(world: World) -> set[int]:
    """Of the compute parent: who works and who waits."""
    return {
        int(pid) for pid in Path(f"/proc/{world.compute.pid}/task/{world.compute.pid}/children").read_text().split()
    }


def waiting_workers(world: World) -> set[int]:
    """As `workers`, once there is one: the program is loaded and nothing was started, or it is over."""
    for _ in range(3000):
        if found := workers(world):
            return found
        time.sleep(0.01)
    raise AssertionError("no worker was ever forked")
