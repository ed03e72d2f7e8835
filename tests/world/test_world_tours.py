"""A GPU that loses its memory inside a tour: the sealed checkpoint brings the accumulator back, and the model is the undisturbed one."""

from __future__ import annotations

from typing import Any

import pytest

from gput.receipts import save, verify
from tests.world.world import NewWorld, World
from tests.world.world_faults import Point, Trap, crash
from tests.world.world_material import HOLDERS, ROUNDS
from tests.world.world_recorder import recording

ORCH, A, COMMANDS = "orchestrator", "agent", "/ports/orchestrator/commands"
# A checkpoint after each visit and each tour's end, so that one made in mid-tour is what is restored.
TUNING = {"orchestrator": {"checkpoint_interval_s": 1e-6, "checkpoint_share": 1e6}}


async def _end(world: World, session: str) -> Any:
    view = await world.completed(session)
    folder = world.folder / "receipts"
    await save(world.owner, session, folder, world.folder / "trust")
    verify(folder)
    return view


@pytest.mark.parametrize("lost_at", [2, pytest.param(4, marks=pytest.mark.slow)])
async def test_a_checkpoint_inside_a_tour_holds_its_gradients(new_world: NewWorld, lost_at: int) -> None:
    async with new_world("undisturbed", settings=TUNING) as world:
        expected = await _end(world, await world.submit(accumulate="tour"))
    async with new_world("disturbed", own_gpu=True, settings=TUNING) as world:
        with recording() as recorder:
            trap = Trap(world, Point(ORCH, A, COMMANDS, "after", lost_at, command="Train"), crash(world, A), recorder)
            session = await world.submit(accumulate="tour")
            await trap.done()
            view = await _end(world, session)
        events = await world.events(session)
    assert view["model"]["digest"] == expected["model"]["digest"]
    assert any("'restored'" in event for event in events), "a restore is a leaf of the log"
    assert len([event for event in events if "'tour_ended'" in event]) == ROUNDS
    assert recorder.reused == []
    assert lost_at % len(HOLDERS), "inside a round, not at its beginning"
