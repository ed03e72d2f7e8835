"""One committed visit of the emulated GPU, for tests that train."""

from __future__ import annotations

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
