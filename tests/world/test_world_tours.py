"""A GPU that loses its memory inside a tour: the sealed checkpoint brings the accumulator back, and the model is the undisturbed one."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from gpu_agent.hardware import commands_tour
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


def failing_ends(patch: pytest.MonkeyPatch, failures: int) -> list[str]:
    """The GPU's next launches of a tour's step are of other code than was measured, so that its compute refuses them; all that came."""
    honest, launched = commands_tour.launch, []

    def launch(state: Any, kind: Any, *rest: Any) -> Any:
        launched.append(kind)
        found = honest(state, kind, *rest)
        return found if len(launched) > failures else replace(found, code_digest="00" * 32)

    patch.setattr(commands_tour, "launch", launch)
    return launched


async def test_an_end_that_fails_is_tried_again_and_the_model_is_the_undisturbed_one(
    new_world: NewWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with new_world("undisturbed") as world:
        expected = await _end(world, await world.submit(accumulate="tour"))
    async with new_world("disturbed") as world:
        launched = failing_ends(monkeypatch, 2)
        session = await world.submit(accumulate="tour")
        view = await _end(world, session)
        events = [event for event in await world.events(session) if "'tour_failed'" in event]
    assert view["model"]["digest"] == expected["model"]["digest"]
    assert len(launched) == ROUNDS + 2
    assert ["'round': 1, 'attempt': 1" in events[0], "'attempt': 2" in events[1], len(events)] == [True, True, 2]


async def test_an_end_that_always_fails_ends_the_session_however_often_the_orchestrator_restarts(
    new_world: NewWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Killed when the first failure is written down and the second end is about to begin; what came before the restart counts."""
    async with new_world() as world:
        launched = failing_ends(monkeypatch, 10**6)
        with recording() as recorder:
            trap = Trap(world, Point(ORCH, A, COMMANDS, "before", 2, command="EndTour"), crash(world, ORCH), recorder)
            session = await world.submit(accumulate="tour")
            await trap.done()
        view = await world.finish(session)
        events = [event for event in await world.events(session) if "'tour_failed'" in event]
    assert (view["phase"], view["failure"]["code"]) == ("FAILED", "tour-failed")
    assert "failed 3 times" in view["failure"]["detail"]
    assert len(events) == 3, "visit_attempts"
    assert view["visits_closed"] == len(HOLDERS)
    assert len(launched) == 3
