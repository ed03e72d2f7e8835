"""A session of tours: its model is plain accumulation's, its receipts hold, and nothing that breaks changes it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import safetensors.torch
import torch
from torch import Tensor

from gpu_agent.workload.builder import build
from gpu_agent.workload.programs.classifier import Classifier, label_losses
from shared.canonical import sha256
from shared.claims.manifest import Acceptance, RosterEntry, Validation
from shared.claims.training import AdamW, Schedule, TrainingOptions
from shared.names import TravelMode
from tests.sessions.session_world import Work
from tests.workload.plain_pytorch import accumulate_plain
from tests.world.world_faults import Point, Trap, crash
from tests.world.world_material import EMULATED, HOLDERS
from tests.world.world_recorder import recording

FEATURES, CLASSES, HIDDEN, B, ROUNDS, ROWS = 5, 3, (12, 8), 8, 3, 60
STEPS = {"city": 1, "harbour": 3, "north": 2}
OPTIONS = TrainingOptions(
    batch_size=B, seed=23, grad_clip_norm=0.8, optimizer=AdamW(lr=0.02, weight_decay=0.05),
    schedule=Schedule(kind="constant", warmup_steps=1),
)  # fmt: skip
COMMANDS = "/ports/orchestrator/commands"
EDGES = [
    Point("orchestrator", "agent", COMMANDS, "before", command="EndTour"),
    Point("orchestrator", "agent", COMMANDS, "after", 2, command="EndTour"),
    Point("orchestrator", "agent", COMMANDS, "after", 2, command="Commit"),  # the second visit's: its gradients are in
    Point("orchestrator", "agent", COMMANDS, "before", 4, command="Commit"),  # the first tour's
    Point("orchestrator", "agent", COMMANDS, "after", 4, command="Commit"),
    Point("holder-city", "agent", "/copy", "before", 2),
]


def _rows(holder: str) -> tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]]:
    draw = np.random.default_rng(HOLDERS.index(holder))
    features = draw.normal(size=(ROWS, FEATURES)).astype(np.float32)
    return features, (features[:, 0] > 0).astype(np.int64) + (features[:, 1] > 0.5)


def _tours() -> list[list[dict[str, Tensor]]]:
    """Batches by round in visit order: each holder's records in file order, wrapping."""
    at = dict.fromkeys(HOLDERS, 0)
    tours: list[list[dict[str, Tensor]]] = []
    for _ in range(ROUNDS):
        tours.append([])
        for holder in HOLDERS:
            features, labels = _rows(holder)
            for _ in range(STEPS[holder]):
                chosen = np.arange(at[holder], at[holder] + B) % ROWS
                at[holder] += B
                tours[-1].append(
                    {"features": torch.from_numpy(features[chosen]), "label": torch.from_numpy(labels[chosen])}
                )
    return tours


@pytest.fixture
def work(tmp_path: Path) -> Work:
    archive, weights = build("classifier", features=FEATURES, classes=CLASSES, hidden=HIDDEN, dropout=0.25, seed=4)
    datasets = {}
    for name in HOLDERS:
        features, labels = _rows(name)
        datasets[name] = tmp_path / f"{name}.npz"
        np.savez(datasets[name], features=features, label=labels)
    return Work(archive, weights, datasets)


async def _submitted(world: Any, **changes: Any) -> str:
    roster = tuple(
        RosterEntry(holder=name, key=world.key(name).fingerprint, evidence=EMULATED, steps_per_visit=STEPS[name])
        for name in HOLDERS
    )
    fields: dict[str, Any] = {
        "roster": roster, "rounds": ROUNDS, "steps_per_visit": 1, "training": OPTIONS, "privacy_floor": B, "loss_decimals": 6,
        "validation": None, "accumulate": "tour", "buffer_bytes": 8192,
    }  # fmt: skip
    return str(await world.submit(**(fields | changes)))


async def _checked(world: Any, session: str, work: Work) -> None:
    """The exported model is plain accumulation's, bit for bit; the receipts verify, and no visit changed the model."""
    view, losses = await world.completed(session), await world.losses(session)
    statements = await world.statements(session)
    exported = safetensors.torch.load_file(await world.model_file(session))
    model = Classifier(FEATURES, CLASSES, HIDDEN, False, 0.25)
    assert work.weights is not None
    model.load_state_dict(safetensors.torch.load(work.weights))
    expected = accumulate_plain(model, label_losses, _tours(), OPTIONS)
    assert view["step"] == ROUNDS * sum(STEPS.values()) == len(losses)
    assert losses == pytest.approx(expected, abs=1e-6)
    for name, value in model.state_dict().items():
        assert torch.equal(exported[name], value), name
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
        async with session_world(work) as world:
            trap = Trap(world, point, crash(world, "orchestrator"), recorder)
            session = await _submitted(world)
            await trap.done()
            await _checked(world, session, work)
    assert recorder.reused == []


async def test_a_holder_dies_with_a_visit_inside_a_tour(session_world: Any, work: Work) -> None:
    async with session_world(work) as world:
        trap = Trap(world, Point("holder-harbour", "agent", "/copy", "before"), crash(world, "holder-harbour"))
        session = await _submitted(world)
        await trap.done()
        await _checked(world, session, work)


def _held_out(count: int = 32) -> bytes:
    draw = np.random.default_rng(77)
    features, labels = draw.normal(size=(count, FEATURES)).astype(np.float32), draw.integers(CLASSES, size=count)
    kind = np.dtype([("features", "<f4", (FEATURES,)), ("label", "<i8")])
    rows = np.zeros(count, kind)
    rows["features"], rows["label"] = features, labels
    return rows.tobytes()


async def test_a_tour_that_makes_the_model_worse_is_dropped_as_one(session_world: Any, work: Work) -> None:
    """A learning rate at which each step can only overshoot: no tour is kept, nobody is blamed, the model is the first one."""
    options = TrainingOptions(batch_size=B, seed=23, optimizer=AdamW(lr=5.0))
    async with session_world(work) as world:
        await world.enrol()
        await world.owner.upload_validation(_held_out())
        session = await _submitted(
            world, training=options, rounds=2, acceptance=Acceptance(quarantine_after=1),
            validation=Validation(dataset=sha256(_held_out()).hex(), records=32, max_loss_increase=1e-6),
        )  # fmt: skip
        view = await world.completed(session)
        statements = await world.statements(session)
        exported = safetensors.torch.load_file(await world.model_file(session))
        visits, events = await world.visits(session), await world.events(session)
    assert work.weights is not None
    for name, value in safetensors.torch.load(work.weights).items():
        assert torch.equal(exported[name], value), name
    assert [visit["outcome"] for visit in visits] == ["closed"] * 2 * len(HOLDERS)
    assert not any(holder["quarantined"] or holder["rejected"] for holder in view["holders"])
    first = statements[0][1]["accumulated"]["before"]
    assert [said["accumulated"]["before"] == first for _, said in statements] == [True, False, False] * 2
    assert len([event for event in events if "tour_ended" in event and "'stepped': False" in event]) == 2


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
        exported = safetensors.torch.load_file(await world.model_file(session))
    assert [said["accumulated"]["batches"] for _, said in statements] == [1, 4]
    model = Classifier(FEATURES, CLASSES, HIDDEN, False, 0.25)
    assert work.weights is not None
    model.load_state_dict(safetensors.torch.load(work.weights))
    accumulate_plain(model, label_losses, [_tours()[0][:4]], OPTIONS)
    for name, value in model.state_dict().items():
        assert torch.equal(exported[name], value), name
