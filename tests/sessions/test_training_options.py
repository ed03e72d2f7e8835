"""Options that people expect, together, in one session over CSV files: it ends where plain PyTorch ends on the same batches."""

from __future__ import annotations

import csv
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
from shared.claims.training import SGD, Schedule, TrainingOptions
from tests.sessions.session_world import Work
from tests.workload.plain_pytorch import train_plain
from tests.world.world_material import EMULATED, HOLDERS

FEATURES, CLASSES, HIDDEN, B, ROUNDS = 5, 3, (12, 8), 8, 3
STEPS = {"city": 1, "harbour": 3, "north": 2}  # north's is the manifest's own
ROWS = {"city": 40, "harbour": 52, "north": 30}  # harbour (72 needed) and north (48) begin again from their first row
OPTIONS = TrainingOptions(
    batch_size=B, seed=23, grad_clip_norm=0.8,
    optimizer=SGD(lr=0.2, momentum=0.9, weight_decay=0.05, decay="matrices"),
    schedule=Schedule(kind="linear", warmup_steps=4, final_factor=0.1),
)  # fmt: skip


def _rows(holder: str) -> tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]]:
    draw = np.random.default_rng(HOLDERS.index(holder))
    features = draw.normal(size=(ROWS[holder], FEATURES)).astype(np.float32)
    return features, (features[:, 0] > 0).astype(np.int64) + (features[:, 1] > 0.5)


def _csv(path: Path, holder: str) -> Path:
    features, labels = _rows(holder)
    with path.open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(["label", *(f"x{i}" for i in range(FEATURES))])
        # repr of the float32 widened to float64 reads back as the same float32
        writer.writerows([int(y), *(repr(float(x)) for x in row)] for row, y in zip(features, labels, strict=True))
    return path


def _batches() -> list[dict[str, Tensor]]:
    """Batches in visit order: each holder's records in file order, wrapping."""
    found, at = [], dict.fromkeys(HOLDERS, 0)
    for _ in range(ROUNDS):
        for holder in HOLDERS:
            features, labels = _rows(holder)
            for _ in range(STEPS[holder]):
                chosen = np.arange(at[holder], at[holder] + B) % ROWS[holder]
                at[holder] += B
                found.append(
                    {"features": torch.from_numpy(features[chosen]), "label": torch.from_numpy(labels[chosen])}
                )
    return found


@pytest.mark.filterwarnings("ignore:.*lr_scheduler.step.*")
async def test_a_session_equals_plain_pytorch(session_world: Any, tmp_path: Path) -> None:
    archive, weights = build(
        "classifier", features=FEATURES, classes=CLASSES, hidden=HIDDEN, batch_norm=True, dropout=0.25, seed=4
    )
    assert weights is not None
    work = Work(archive, weights, {name: _csv(tmp_path / f"{name}.csv", name) for name in HOLDERS})
    async with session_world(work) as world:
        roster = tuple(
            RosterEntry(
                holder=name, key=world.key(name).fingerprint, evidence=EMULATED,
                steps_per_visit=None if name == "north" else STEPS[name],
            )
            for name in HOLDERS
        )  # fmt: skip
        session = await world.submit(
            roster=roster, rounds=ROUNDS, steps_per_visit=STEPS["north"], training=OPTIONS, privacy_floor=B,
            loss_decimals=6, validation=None,
        )  # fmt: skip
        view = await world.completed(session)
        visits, losses = await world.visits(session), await world.losses(session)
        exported = safetensors.torch.load_file(await world.model_file(session))

    assert [(v["holder"], v["steps"]) for v in visits] == [(name, STEPS[name]) for name in HOLDERS] * ROUNDS
    assert view["step"] == ROUNDS * sum(STEPS.values()) == len(losses)

    model = Classifier(FEATURES, CLASSES, HIDDEN, True, 0.25)
    model.load_state_dict(safetensors.torch.load(weights))
    # PyTorch's own LinearLR multiplies factor by factor; ours is the closed form: they differ in the last bits.
    expected = train_plain(model, label_losses, _batches(), OPTIONS, fused=True)
    assert losses == pytest.approx(expected, abs=2e-6)
    plain = model.state_dict()
    assert set(exported) == set(plain)
    for name, value in plain.items():
        torch.testing.assert_close(exported[name], value, atol=1e-6, rtol=1e-6, msg=name)
    assert exported["layers.1.num_batches_tracked"].item() == len(losses)
