"""A session of tours: its model is that of plain accumulation of the same batches, its receipts hold, and nothing that breaks changes it."""

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
from shared.claims.manifest import RosterEntry
from shared.claims.training import AdamW, Schedule, TrainingOptions
from shared.names import TravelMode
from tests.sessions.session_world import Work
from tests.workload.plain_pytorch import accumulate_plain
from tests.world.world_faults import Point, Trap, crash
from tests.world.world_material import EMULATED, HOLDERS

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
