"""Sessions that end when the held-out loss falls no more, and release the model that was best: disturbed or not, the same one."""

from __future__ import annotations

from base64 import b64decode
from typing import Any

import cbor2
import pytest

from gpu_agent.hardware import commands_transfer
from gput.receipts import save, verify
from orchestrator.gpu_session import checkpoints
from shared.claims.manifest import Acceptance, Validation
from shared.claims.training import AdamW, Schedule, TrainingOptions
from tests.world.test_world_crashes import COMMANDS, ORCH, A
from tests.world.world import NewWorld, World
from tests.world.world_faults import Point, Trap, crash
from tests.world.world_material import BATCH, HOLDERS, RECORD_BYTES, Material
from tests.world.world_recorder import recording

ROUNDS, PATIENCE = 5, 2
RISING = TrainingOptions(
    optimizer=AdamW(lr=1.0), batch_size=BATCH, seed=7, schedule=Schedule(warmup_steps=100)
)  # a rate that first teaches and then destroys


def asked(material: Material, **changes: Any) -> dict[str, Any]:
    """Changes of the usual manifest: a check after every visit, and what the test asks of it."""
    rule: dict[str, Any] = {"patience": PATIENCE, "release": "best"} | changes
    records = len(material.validation) // RECORD_BYTES
    dataset = material.manifest().validation
    assert dataset is not None
    return {
        "rounds": ROUNDS, "training": RISING, "acceptance": Acceptance(max_update_ratio=None),
        "validation": Validation(dataset=dataset.dataset, records=records, **rule),
    }  # fmt: skip


async def losses(world: World, session: str) -> list[float]:
    """The held-out loss before the first visit and after each that closed."""
    view, visits = await world.owner.session(session), await world.visits(session)
    closed = [visit for visit in visits if visit["outcome"] == "closed"]
    return [view["validation_loss"]["first"], *(visit["validation_after"] for visit in closed)]


def payload(cose: bytes) -> Any:
    """Claims of a COSE_Sign1 whose signature is verified elsewhere."""
    return cbor2.loads(cbor2.loads(cose).value[2])


async def models(world: World, session: str) -> list[str]:
    """Digest of the first model and of that after each closed visit, as the device states it."""
    items = await world.owner.items(f"sessions/{session}/receipts")
    receipts = [payload(b64decode(item["cose"])) for item in items if item["outcome"] == "closed"]
    said = [payload(receipt["statement"]) for receipt in receipts]
    return [said[0]["model_before"], *(statement["model_after"] for statement in said)]


async def test_it_ends_early_and_releases_the_best_model(new_world: NewWorld, material: Material) -> None:
    async with new_world() as world:
        session = await world.submit(**asked(material))
        view = await world.completed(session)
        seen, left = await losses(world, session), await models(world, session)
        events = await world.events(session)
        await save(world.owner, session, world.folder / "saved", world.folder / "trust")
        verified = verify(world.folder / "saved")
        assert verified.models == (view["model"]["digest"],)
    best = seen.index(min(seen))
    assert 0 < best < len(seen) - 1, "the test's rate is to teach first and destroy then"
    assert len(seen) - 1 - best == PATIENCE
    assert view["visits_closed"] == len(seen) - 1 < ROUNDS * len(HOLDERS)
    assert f"after visit {best} ({seen[best]})" in view["stopped_early"]
    assert view["model"]["digest"] == left[best] != left[-1]
    assert view["validation_loss"]["last"] == seen[best]
    assert [word for event in events for word in ("stopped_early", "best_chosen") if word in event] == [
        "stopped_early", "best_chosen",
    ]  # fmt: skip
    assert verified.receipts == len(seen) - 1


async def test_without_release_the_last_model_is_the_finished_one(new_world: NewWorld, material: Material) -> None:
    async with new_world() as world:
        session = await world.submit(**asked(material, release=None, patience=1))
        view = await world.completed(session)
        seen, left = await losses(world, session), await models(world, session)
    assert view["stopped_early"]
    assert view["model"]["digest"] == left[-1]
    assert len(seen) - 1 - seen.index(min(seen)) == 1


async def test_without_patience_the_best_of_all_visits_is_released(new_world: NewWorld, material: Material) -> None:
    async with new_world() as world:
        session = await world.submit(**asked(material, patience=None) | {"rounds": 2})
        view = await world.completed(session)
        seen, left = await losses(world, session), await models(world, session)
    assert view["stopped_early"] is None
    assert view["visits_closed"] == 2 * len(HOLDERS)
    assert view["model"]["digest"] == left[seen.index(min(seen))] != left[-1]


async def test_a_session_that_goes_on_learning_ends_as_planned(new_world: NewWorld, material: Material) -> None:
    async with new_world() as world:
        manifest = asked(material) | {
            "rounds": 1,
            "training": TrainingOptions(optimizer=AdamW(lr=1e-2), batch_size=BATCH),
        }
        session = await world.submit(**manifest)
        view = await world.completed(session)
        seen, left = await losses(world, session), await models(world, session)
    assert seen == sorted(seen, reverse=True)
    assert view["stopped_early"] is None
    assert view["model"]["digest"] == left[-1]


@pytest.mark.parametrize(
    "tour", [{"collect": "tour"}, pytest.param({"accumulate": "tour"}, marks=pytest.mark.slow)], ids=str
)
async def test_a_tour_counts_as_one_check(tour: dict[str, str], new_world: NewWorld, material: Material) -> None:
    # A round that accumulates makes one step only: the rate has to rise that much faster to destroy within so many rounds.
    steeper = (
        {"training": RISING.model_copy(update={"schedule": Schedule(warmup_steps=10)})} if "accumulate" in tour else {}
    )
    async with new_world() as world:
        session = await world.submit(**asked(material, patience=1) | {"rounds": 8} | tour | steeper)
        view = await world.completed(session)
        events = [event.data async for event in world.owner.events(session)]
    fact = "tour_ended" if "accumulate" in tour else "validated"
    judged = [e["validation_after"] for e in events if e.get("validation_after") is not None]
    seen = [view["validation_loss"]["first"], *judged]
    assert view["stopped_early"], (fact, seen)
    assert view["visits_closed"] % len(HOLDERS) == 0
    assert view["visits_closed"] < 8 * len(HOLDERS)
    assert view["validation_loss"]["last"] == min(seen)
    assert seen.index(min(seen)) == len(seen) - 2


POINTS = [
    Point(ORCH, A, COMMANDS, "after", 2, command="Checkpoint"),
    Point(ORCH, A, COMMANDS, "before", command="Restore"),
    Point(ORCH, A, COMMANDS, "after", command="Restore"),
    Point(ORCH, A, COMMANDS, "before", command="Export"),
    Point(ORCH, A, COMMANDS, "after", command="Export"),
]
QUICK = {2}


@pytest.mark.parametrize(("moment", "count"), [("after", 1), pytest.param("before", 2, marks=pytest.mark.slow)])
async def test_a_life_that_ends_between_two_parts_of_the_best_model_is_followed_by_one_that_begins_again(
    moment: str, count: int, new_world: NewWorld, material: Material, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What the GPU holds then is no committed model: it is emptied and filled from the newest checkpoint."""
    monkeypatch.setattr(commands_transfer, "CHUNK", 4096)  # as if the model were larger than one part
    monkeypatch.setattr(checkpoints, "BATCH_BYTES", 4096)
    async with new_world() as world:
        point = Point(ORCH, A, COMMANDS, moment, count, command="Restore")
        with recording() as recorder:
            trap = Trap(world, point, crash(world, ORCH), recorder)
            session = await world.submit(**asked(material))
            await trap.done()
        view = await world.completed(session)
        lives = [
            event.data["life"] async for event in world.owner.events(session) if event.data.get("fact") == "life_opened"
        ]
        seen, left = await losses(world, session), await models(world, session)
    assert lives == [1, 2, 1], "the one that found half a model, and that of the emptied GPU"
    assert view["model"]["digest"] == left[seen.index(min(seen))]


@pytest.mark.parametrize("service", [ORCH, pytest.param(A, marks=pytest.mark.slow)])
@pytest.mark.parametrize(
    "point", [pytest.param(p, id=str(p), marks=() if n in QUICK else pytest.mark.slow) for n, p in enumerate(POINTS)]
)
async def test_whatever_dies_the_same_model_is_released(
    point: Point, service: str, new_world: NewWorld, material: Material
) -> None:
    """The agent's death takes the GPU's memory with it: what was trained since the last checkpoint is trained again."""
    async with new_world("calm") as calm:
        wanted = (await calm.completed(await calm.submit(**asked(material))))["model"]["digest"]
    async with new_world(own_gpu=service == A) as world:
        with recording() as recorder:
            trap = Trap(world, point, crash(world, service), recorder)
            session = await world.submit(**asked(material))
            await trap.done()
        view = await world.completed(session)
    assert view["model"]["digest"] == wanted
    assert view["stopped_early"]
