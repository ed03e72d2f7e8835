"""The held-out check where stops are passed over or not kept: it comes when it would have come, and no model is released without it."""

from __future__ import annotations

from typing import Any

import pytest

from gput.receipts import save, verify
from orchestrator.visits import cycle
from orchestrator.visits.run import Run
from orchestrator.visits.training import Verdict
from shared.claims.training import AdamW, TrainingOptions
from shared.wire.gpu_answers import WorkState
from tests.world.test_world_crashes import COMMANDS, ORCH, A
from tests.world.test_world_early_stop import asked, models
from tests.world.world import NewWorld, World
from tests.world.world_faults import Point, Trap, crash
from tests.world.world_material import BATCH, Material
from tests.world.world_recorder import recording

EACH, ROUNDS = 3, 2
USEFUL, RUINOUS = (TrainingOptions(optimizer=AdamW(lr=lr), batch_size=BATCH, seed=7) for lr in (1e-2, 5.0))


def seldom(material: Material, **rule: Any) -> dict[str, Any]:
    """A manifest with a check every third visit."""
    changes = {"patience": None, "release": None, "every_visits": EACH} | rule
    return asked(material, **changes) | {"rounds": ROUNDS, "training": USEFUL}


@pytest.fixture
def last_not_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    """The last visit of all is not kept, and for something else than a held-out loss."""
    honest = cycle.validate

    async def validate(run: Run, trained: WorkState) -> Verdict:
        if run.visit.index == run.state.itinerary.length:
            return Verdict(False, "too large", run.committed.validation, None)
        return await honest(run, trained)

    monkeypatch.setattr(cycle, "validate", validate)


async def without(world: World, holder: str, manifest: dict[str, Any]) -> str:
    session = await world.submit(**manifest, quorum=2)
    await world.operator(holder).decide(session, "refuse")
    for name in sorted({"city", "harbour", "north"} - {holder}):
        await world.operator(name).decide(session, "approve", dataset="ehr")
    return session


async def checked(world: World, session: str) -> list[int]:
    return [visit["index"] for visit in await world.visits(session) if visit["validation_after"] is not None]


@pytest.mark.parametrize(("absent", "stops"), [("north", [4, 5]), ("city", [3, 6])])
async def test_a_check_comes_also_where_its_own_stop_is_passed_over(
    absent: str, stops: list[int], new_world: NewWorld, material: Material
) -> None:
    async with new_world(approve="manual") as world:
        session = await without(world, absent, seldom(material))
        view = await world.completed(session)
        assert await checked(world, session) == stops
        last = (await world.visits(session))[-1]
    assert view["validation_loss"]["last"] == last["validation_after"] < view["validation_loss"]["first"]


async def test_the_best_model_is_not_the_first_one_for_want_of_checks(new_world: NewWorld, material: Material) -> None:
    async with new_world(approve="manual") as world:
        session = await without(world, "north", seldom(material, release="best"))
        view = await world.completed(session)
        left = await models(world, session)
    assert view["model"]["digest"] == left[-1]


@pytest.mark.usefixtures("last_not_kept")
async def test_the_finished_model_is_checked_where_its_last_visit_was_not(
    new_world: NewWorld, material: Material
) -> None:
    async with new_world() as world:
        session = await world.submit(**seldom(material, release="best", max_loss_increase=0.01))
        view = await world.completed(session)
        assert await checked(world, session) == [3]
        found = [event.data async for event in world.owner.events(session) if event.data.get("fact") == "last_checked"]
        left = await models(world, session)
        await save(world.owner, session, world.folder / "saved", world.folder / "trust")
        assert verify(world.folder / "saved").models == (view["model"]["digest"],)
    assert view["model"]["digest"] == left[-1]
    (said,) = found
    assert view["validation_loss"]["last"] == said["validation_after"] < said["validation_before"]


@pytest.mark.usefixtures("last_not_kept")
async def test_a_model_that_does_not_pass_is_not_released(new_world: NewWorld, material: Material) -> None:
    async with new_world() as world:
        manifest = seldom(material, max_loss_increase=0.01) | {"training": RUINOUS}
        view = await world.finish(await world.submit(**manifest))
    assert (view["phase"], view["failure"]["code"], view["model"]) == ("FAILED", "held-out-check", None)


@pytest.mark.usefixtures("last_not_kept")
async def test_in_its_place_goes_the_best_one_where_that_is_kept(new_world: NewWorld, material: Material) -> None:
    async with new_world() as world:
        manifest = seldom(material, release="best", max_loss_increase=0.01) | {"training": RUINOUS}
        session = await world.submit(**manifest)
        view = await world.completed(session)
        left = await models(world, session)
    assert view["model"]["digest"] == left[0]
    assert view["validation_loss"]["last"] == view["validation_loss"]["first"]


@pytest.mark.usefixtures("last_not_kept")
@pytest.mark.parametrize("service", [ORCH, pytest.param(A, marks=pytest.mark.slow)])
async def test_whatever_dies_at_the_check_the_model_is_the_same(
    service: str, new_world: NewWorld, material: Material
) -> None:
    manifest = seldom(material, release="best")
    async with new_world("calm") as calm:
        wanted = await calm.completed(await calm.submit(**manifest))
    async with new_world(own_gpu=service == A) as world:
        with recording() as recorder:
            point = Point(ORCH, A, COMMANDS, "after", 3, command="Evaluate")
            trap = Trap(world, point, crash(world, service), recorder)
            session = await world.submit(**manifest)
            await trap.done()
        view = await world.completed(session)
    assert (view["model"], view["validation_loss"]) == (wanted["model"], wanted["validation_loss"])
