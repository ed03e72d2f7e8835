"""A session of collected tours: its model is that of pooled training on the same shuffled order, and nothing that breaks changes it."""

from __future__ import annotations

from collections.abc import Collection
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
from shared.protocol.mixture import mixture_order, mixture_seed
from tests.sessions.session_world import Work
from tests.workload.plain_pytorch import train_plain
from tests.world.world_faults import Point
from tests.world.world_material import EMULATED, HOLDERS

FEATURES, CLASSES, HIDDEN, B, ROUNDS, ROWS = 5, 3, (12, 8), 8, 3, 60
STEPS = {"city": 1, "harbour": 3, "north": 2}
PER_ROUND = sum(STEPS.values())
OPTIONS = TrainingOptions(
    batch_size=B, seed=23, grad_clip_norm=0.8, optimizer=AdamW(lr=0.02, weight_decay=0.05),
    schedule=Schedule(kind="cosine", warmup_steps=2),
)  # fmt: skip
COMMANDS = "/ports/orchestrator/commands"
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
Rows = tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]]


def _rows(holder: str) -> Rows:
    draw = np.random.default_rng(HOLDERS.index(holder))
    features = draw.normal(size=(ROWS, FEATURES)).astype(np.float32)
    return features, (features[:, 0] > 0).astype(np.int64) + (features[:, 1] > 0.5)


def _pooled(round_number: int, without: Collection[str] = ()) -> list[dict[str, Tensor]]:
    """A round's batches: its visits' records pooled, shuffled by the manifest's seed, cut into batches."""
    features, labels = [], []
    for holder in HOLDERS:
        if holder not in without:
            theirs, count = _rows(holder), STEPS[holder] * B
            chosen = np.arange((round_number - 1) * count, round_number * count) % ROWS
            features.append(theirs[0][chosen])
            labels.append(theirs[1][chosen])
    pooled = torch.from_numpy(np.concatenate(features)), torch.from_numpy(np.concatenate(labels))
    shuffled = mixture_order(mixture_seed(OPTIONS.seed, round_number), len(pooled[1])).records(
        np.arange(len(pooled[1]))
    )
    return [{"features": pooled[0][at], "label": pooled[1][at]} for at in torch.from_numpy(shuffled).split(B)]


def _plain(work: Work, batches: list[dict[str, Tensor]]) -> tuple[Classifier, list[float]]:
    model = Classifier(FEATURES, CLASSES, HIDDEN, False, 0.25)
    assert work.weights is not None
    model.load_state_dict(safetensors.torch.load(work.weights))
    return model, train_plain(model, label_losses, batches, OPTIONS, fused=True)


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
        "validation": None, "collect": "tour", "buffer_bytes": 8192,
    }  # fmt: skip
    return str(await world.submit(**(fields | changes)))


async def _exported(world: Any, session: str) -> dict[str, Tensor]:
    return safetensors.torch.load_file(await world.model_file(session))


def _same(exported: dict[str, Tensor], model: torch.nn.Module) -> None:
    for name, value in model.state_dict().items():
        assert torch.equal(exported[name], value), name


async def _checked(world: Any, session: str, work: Work) -> None:
    """The exported model is pooled training's, bit for bit; the receipts verify and name each mixture."""
    view, losses = await world.completed(session), await world.losses(session)
    statements = await world.statements(session)
    model, expected = _plain(work, [batch for number in range(ROUNDS) for batch in _pooled(number + 1)])
    _same(await _exported(world, session), model)
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
