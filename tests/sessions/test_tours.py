"""A session of tours: its model is plain accumulation's, its receipts hold, and nothing that breaks changes it."""

from __future__ import annotations

from typing import Any

import pytest

from gpu_agent.hardware import commands_tour
from gpu_agent.workload.programs.classifier import label_losses
from shared.claims.training import Schedule
from shared.names import TravelMode
from tests.sessions.session_world import SessionWorld, Work
from tests.sessions.tour_world import (
    COMMANDS,
    PER_ROUND,
    ROUNDS,
    exported,
    first_model,
    options,
    overshot,
    require_same,
    submitted,
    survived,
    visits,
)
from tests.workload.plain_pytorch import accumulate_plain
from tests.world.world_faults import Point, Trap
from tests.world.world_material import HOLDERS
from tests.world.world_recorder import recording

OPTIONS = options(Schedule(kind="constant", warmup_steps=1))
EDGES = [
    Point("orchestrator", "agent", COMMANDS, "before", command="EndTour"),
    Point("orchestrator", "agent", COMMANDS, "after", 2, command="EndTour"),
    Point("orchestrator", "agent", COMMANDS, "after", 2, command="Commit"),  # the second visit's: its gradients are in
    Point("orchestrator", "agent", COMMANDS, "before", 4, command="Commit"),  # the first tour's
    Point("orchestrator", "agent", COMMANDS, "after", 4, command="Commit"),
    Point("holder-city", "agent", "/copy", "before", 2),
]


async def _submitted(world: SessionWorld, **changes: Any) -> str:
    return await submitted(world, **({"training": OPTIONS, "accumulate": "tour"} | changes))


async def _checked(world: SessionWorld, session: str, work: Work) -> None:
    """The exported model is plain accumulation's, bit for bit; the receipts verify, and no visit changed the model."""
    view, losses = await world.completed(session), await world.losses(session)
    statements = await world.statements(session)
    model = first_model(work)
    expected = accumulate_plain(model, label_losses, [visits(number + 1) for number in range(ROUNDS)], OPTIONS)
    assert view["step"] == ROUNDS * PER_ROUND == len(losses)
    assert losses == pytest.approx(expected, abs=1e-6)
    require_same(await exported(world, session), model)
    assert all(said["model_before"] == said["model_after"] for _, said in statements)
    assert len({said["model_before"] for _, said in statements}) == ROUNDS, "the model changes at each tour's end alone"
    assert [said["accumulated"]["batches"] for outcome, said in statements if outcome == "closed"] == [1, 4, 6] * ROUNDS
    assert len([event for event in await world.events(session) if "tour_ended" in event]) == ROUNDS


@pytest.mark.parametrize("mode", [TravelMode.SCOPED, TravelMode.DIRECT], ids=str)
async def test_a_session_of_tours_equals_plain_accumulation(session_world: Any, work: Work, mode: TravelMode) -> None:
    async with session_world(work) as world:
        session = await _submitted(world, travel_mode=mode)
        await _checked(world, session, work)


@pytest.mark.parametrize(
    "point", [pytest.param(p, id=str(p), marks=() if i in (1, 4) else pytest.mark.slow) for i, p in enumerate(EDGES)]
)
async def test_the_orchestrator_dies_inside_a_tour(session_world: Any, work: Work, point: Point) -> None:
    with recording() as recorder:
        await survived(session_world, work, point, "orchestrator", _submitted, _checked, recorder)
    assert recorder.reused == []


async def test_a_holder_dies_with_a_visit_inside_a_tour(session_world: Any, work: Work) -> None:
    point = Point("holder-harbour", "agent", "/copy", "before")
    await survived(session_world, work, point, "holder-harbour", _submitted, _checked)


async def test_a_tour_that_makes_the_model_worse_is_dropped_as_one(session_world: Any, work: Work) -> None:
    """A learning rate at which each step can only overshoot: no tour is kept, nobody is blamed, the model is the first one."""
    async with session_world(work) as world:
        session = await overshot(world, _submitted)
        view = await world.completed(session)
        statements = await world.statements(session)
        found = await exported(world, session)
        made, events = await world.visits(session), await world.events(session)
    require_same(found, first_model(work))
    assert [visit["outcome"] for visit in made] == ["closed"] * 2 * len(HOLDERS)
    assert not any(holder["quarantined"] or holder["rejected"] for holder in view["holders"])
    first = statements[0][1]["accumulated"]["before"]
    assert [said["accumulated"]["before"] == first for _, said in statements] == [True, False, False] * 2
    assert len([event for event in events if "tour_ended" in event and "'stepped': False" in event]) == 2


async def test_a_gpu_that_steps_where_it_was_to_drop_the_tour_ends_the_session(
    session_world: Any, work: Work, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It signs truly what became of the model: a dropped tour that changed it. No leaf is made of that, and no model comes of it."""
    honest, kinds = commands_tour.launch, []

    def launch(state: Any, kind: Any, *rest: Any) -> Any:
        kinds.append(kind)
        return honest(state, "step" if kind == "drop" else kind, *rest)

    monkeypatch.setattr(commands_tour, "launch", launch)
    async with session_world(work) as world:
        session = await overshot(world, _submitted)
        view = await world.finish(session)
        events = await world.events(session)
    assert kinds == ["step", "drop"]
    assert (view["phase"], view["failure"]["code"]) == ("FAILED", "statement-mismatch")
    assert "model after a dropped tour" in view["failure"]["detail"]
    assert not any("tour_ended" in event for event in events)


async def test_who_leaves_inside_a_tour_leaves_the_others_their_step(session_world: Any, work: Work) -> None:
    """The last holder vetoes while the second is visited: the tour ends without it, with the mean of what there is."""
    async with session_world(work) as world:

        async def veto() -> None:
            await world.operator("north").decide(session, "veto", reason="no more")

        trap = Trap(world, Point("holder-harbour", "orchestrator", "/report", "before"), veto)
        session = await _submitted(world, quorum=2, rounds=1)
        await trap.done()
        await world.completed(session)
        statements = await world.statements(session)
        found = await exported(world, session)
    assert [said["accumulated"]["batches"] for _, said in statements] == [1, 4]
    model = first_model(work)
    accumulate_plain(model, label_losses, [visits(1, without={"north"})], OPTIONS)
    require_same(found, model)
