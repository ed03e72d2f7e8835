"""A session of collected tours: its model is that of pooled training on the same shuffled order, and nothing that breaks changes it."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

import numpy as np
import pytest
import torch

from gpu_agent.workload.programs.classifier import Classifier, label_losses
from orchestrator.gpu_session.life import GpuLife
from shared.claims.training import Schedule, TrainingOptions
from shared.names import TravelMode
from shared.protocol.mixture import mixture_order, mixture_seed
from tests.sessions.session_world import SessionWorld, Work
from tests.sessions.tour_world import (
    COMMANDS,
    PER_ROUND,
    ROUNDS,
    STEPS,
    B,
    Batch,
    exported,
    first_model,
    options,
    overshot,
    require_same,
    submitted,
    survived,
    visits,
)
from tests.workload.plain_pytorch import train_plain
from tests.world.world_deaths import Deaths, Victim
from tests.world.world_faults import Point, Trap
from tests.world.world_material import HOLDERS
from tests.world.world_recorder import recording

OPTIONS = options(Schedule(kind="cosine", warmup_steps=2))
STEADY = options(Schedule())
EDGES = [
    Point("orchestrator", "agent", COMMANDS, "before", command="TrainTour"),
    Point("orchestrator", "agent", COMMANDS, "after", 2, command="TrainTour"),
    Point("orchestrator", "agent", COMMANDS, "before", 2, command="Commit"),
    Point("orchestrator", "agent", COMMANDS, "after", 2, command="Commit"),
    Point(
        "orchestrator", "agent", COMMANDS, "after", 2, command="InstallGrant"
    ),  # the round's second, with one waiting
    Point("holder-harbour", "orchestrator", "/report", "after", 2),
    Point("holder-city", "agent", "/copy", "before", 2),
]


def _pooled(number: int, without: Collection[str] = ()) -> list[Batch]:
    """A round's batches: its visits' records pooled, shuffled by the manifest's seed, cut into batches."""
    theirs = visits(number, without=without)
    pooled = {name: torch.cat([batch[name] for batch in theirs]) for name in theirs[0]}
    count = len(theirs) * B
    order = mixture_order(mixture_seed(OPTIONS.seed, number), count).records(np.arange(count))
    return [{name: values[at] for name, values in pooled.items()} for at in torch.from_numpy(order).split(B)]


def _plain(work: Work, batches: list[Batch], by: TrainingOptions = OPTIONS) -> tuple[Classifier, list[float]]:
    model = first_model(work)
    return model, train_plain(model, label_losses, batches, by, fused=True)


async def _submitted(world: SessionWorld, **changes: Any) -> str:
    return await submitted(world, **({"training": OPTIONS, "collect": "tour"} | changes))


async def _kept_losses(world: SessionWorld, session: str) -> list[float]:
    """Of the tours that were kept: what was trained, judged and then lost with the orchestrator has losses, too."""
    kept = {visit["id"] for visit in await world.visits(session) if visit["outcome"] == "closed"}
    items = await world.owner.items(f"sessions/{session}/losses")
    assert {item["holder"] for item in items} == {""}, "a mixture's losses are nobody's in particular"
    ordered = sorted((item for item in items if item["visit"] in kept), key=lambda item: item["step"])
    return [float(item["loss"]) for item in ordered]


async def _checked(world: SessionWorld, session: str, work: Work) -> None:
    """The exported model is pooled training's, bit for bit; the receipts verify and name each mixture."""
    view, statements = await world.completed(session), await world.statements(session)
    losses = await _kept_losses(world, session)
    model, expected = _plain(work, [batch for number in range(ROUNDS) for batch in _pooled(number + 1)])
    require_same(await exported(world, session), model)
    assert view["step"] == ROUNDS * PER_ROUND == len(losses)
    assert losses == pytest.approx(expected, abs=1e-6)
    closed = [said for outcome, said in statements if outcome == "closed"]
    assert [said["mixed"]["first"] for said in closed] == [0, B, 4 * B] * ROUNDS
    assert {(said["mixed"]["records"], said["steps"]) for said in closed} == {(PER_ROUND * B, PER_ROUND)}
    assert [said["mixed"]["seed"] for said in closed[::3]] == [mixture_seed(23, n + 1) for n in range(ROUNDS)]
    assert len({said["model_before"] for said in closed}) == ROUNDS, "the model changes once a tour"


@pytest.mark.filterwarnings("ignore:.*lr_scheduler.step.*")
@pytest.mark.parametrize("mode", [TravelMode.SCOPED, TravelMode.DIRECT], ids=str)
async def test_collected_tours_equal_pooled_training_on_the_same_order(
    session_world: Any, work: Work, mode: TravelMode
) -> None:
    async with session_world(work) as world:
        session = await _submitted(world, travel_mode=mode)
        await _checked(world, session, work)


@pytest.mark.filterwarnings("ignore:.*lr_scheduler.step.*")
@pytest.mark.parametrize(
    "point", [pytest.param(p, id=str(p), marks=() if i in (1, 3) else pytest.mark.slow) for i, p in enumerate(EDGES)]
)
async def test_the_orchestrator_dies_inside_a_tour(session_world: Any, work: Work, point: Point) -> None:
    with recording() as recorder:
        await survived(session_world, work, point, "orchestrator", _submitted, _checked, recorder)
    assert recorder.reused == []


@pytest.mark.filterwarnings("ignore:.*lr_scheduler.step.*")
@pytest.mark.parametrize("victim", ["worker", pytest.param("parent", marks=pytest.mark.slow)])
async def test_the_gpus_compute_dies_inside_a_tour(
    session_world: Any, work: Work, victim: Victim, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with session_world(work) as world:
        deaths = Deaths(monkeypatch, victim, "train", 2)
        session = await _submitted(world)
        await _checked(world, session, work)
        made = await world.visits(session)
        view = await world.owner.session(session)
    assert deaths.failed == 1
    assert [visit["outcome"] for visit in made].count("recalled") == len(HOLDERS)
    assert not any(holder["quarantined"] or holder["rejected"] for holder in view["holders"])


async def test_a_tour_whose_training_is_always_killed_ends_the_session(
    session_world: Any, work: Work, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with session_world(work) as world:
        deaths = Deaths(monkeypatch, "worker", "train", 1, times=10**6)
        view = await world.finish(await _submitted(world))
    assert (view["phase"], view["failure"]["code"], deaths.failed) == ("FAILED", "work-lost", 3)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:.*lr_scheduler.step.*")
async def test_a_holder_dies_with_a_visit_inside_a_tour(session_world: Any, work: Work) -> None:
    point = Point("holder-harbour", "agent", "/copy", "before")
    await survived(session_world, work, point, "holder-harbour", _submitted, _checked)


@pytest.mark.filterwarnings("ignore:.*lr_scheduler.step.*")
async def test_a_pause_inside_a_tour_gives_the_records_back(session_world: Any, work: Work) -> None:
    """Nobody's records wait in a GPU whose session stands still; the round is gathered anew and ends as it would have."""
    async with session_world(work) as world:

        async def pause() -> None:
            await world.owner.act(session, "pause")

        trap = Trap(world, Point("holder-north", "orchestrator", "/report", "before"), pause)
        session = await _submitted(world)
        await trap.done()
        await world.until(session, lambda view: view["phase"] == "PAUSED")
        waiting = [v for v in await world.visits(session) if v["outcome"] is None]
        await world.owner.act(session, "resume")
        await _checked(world, session, work)
        made = await world.visits(session)
    assert waiting == []
    assert [v["outcome"] for v in made if v["round"] == 1].count("recalled") >= 2


@pytest.mark.parametrize("who", ["city", "north"])
async def test_who_leaves_inside_a_tour_is_not_trained_on(session_world: Any, work: Work, who: str) -> None:
    """A veto while the second of three is visited: of who was visited already the region is scrubbed, who was not is passed over."""
    async with session_world(work) as world:

        async def veto() -> None:
            await world.operator(who).decide(session, "veto", reason="no more")

        trap = Trap(world, Point("holder-harbour", "orchestrator", "/report", "before"), veto)
        session = await _submitted(world, quorum=2, rounds=1, training=STEADY)
        await trap.done()
        await world.completed(session)
        statements, found = await world.statements(session), await exported(world, session)
        made = await world.visits(session)
    model, _ = _plain(work, _pooled(1, without={who}), STEADY)
    assert [said["holder"] for _, said in statements] == [name for name in HOLDERS if name != who]
    assert {v["outcome"] for v in made if v["holder"] == who} == ({"recalled"} if who == "city" else set())
    assert {said["mixed"]["records"] for _, said in statements} == {(PER_ROUND - STEPS[who]) * B}
    require_same(found, model)


async def test_a_recalled_visit_is_followed_by_a_read_back_before_the_others_are_trained_on(
    session_world: Any, work: Work, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The last holder vetoes with its key alive: the tour is trained on next, and no other fence comes between (law L3)."""
    sent, honest = [], GpuLife.batch

    async def batch(life: GpuLife, commands: Any, *rest: Any, **more: Any) -> Any:
        sent.extend(type(command).__name__ for command in commands)
        return await honest(life, commands, *rest, **more)

    monkeypatch.setattr(GpuLife, "batch", batch)
    async with session_world(work) as world:

        async def veto() -> None:
            await world.operator("north").decide(session, "veto", reason="no more")

        trap = Trap(world, Point("holder-north", "agent", "/copy", "before"), veto)
        session = await _submitted(world, quorum=2, rounds=1, training=STEADY)
        await trap.done()
        await world.completed(session)
        made, found = await world.visits(session), await exported(world, session)
    assert [v["outcome"] for v in made if v["holder"] == "north"] == ["recalled"]
    trained = sent.index("TrainTour")
    fenced = max(at for at, name in enumerate(sent[:trained]) if name == "OpenEpoch")
    assert "Measure" in sent[fenced:trained]
    model, _ = _plain(work, _pooled(1, without={"north"}), STEADY)
    require_same(found, model)


async def test_a_tour_that_makes_the_model_worse_is_rolled_back_as_one(session_world: Any, work: Work) -> None:
    """A learning rate at which each step can only overshoot: no tour is kept, nobody is blamed, the model is the first one."""
    async with session_world(work) as world:
        session = await overshot(world, _submitted, quorum=1)
        view = await world.completed(session)
        statements, found = await world.statements(session), await exported(world, session)
        made = await world.visits(session)
    require_same(found, first_model(work))
    assert [visit["outcome"] for visit in made] == ["rejected"] * 2 * len(HOLDERS)
    assert not any(holder["quarantined"] or holder["rejected"] for holder in view["holders"])
    assert all(said["model_before"] == said["model_after"] for _, said in statements)
