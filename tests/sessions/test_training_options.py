"""Options that people expect, together, in one session over CSV files: it ends where plain PyTorch ends on the same batches."""

from __future__ import annotations

import csv
from pathlib import Path
from typing import Any

import pytest
import torch

from gpu_agent.workload.builder import build
from gpu_agent.workload.programs.classifier import label_losses
from shared.claims.training import SGD, Schedule, TrainingOptions
from tests.sessions.session_world import Work
from tests.sessions.tour_world import (
    CLASSES,
    DROPOUT,
    FEATURES,
    HIDDEN,
    PER_ROUND,
    ROUNDS,
    STEPS,
    B,
    exported,
    first_model,
    roster,
    rows,
    submitted,
    visits,
)
from tests.workload.plain_pytorch import train_plain
from tests.world.world_material import HOLDERS

ROWS = {"city": 40, "harbour": 52, "north": 30}  # harbour (72 needed) and north (48) begin again from their first row
OPTIONS = TrainingOptions(
    batch_size=B, seed=23, grad_clip_norm=0.8,
    optimizer=SGD(lr=0.2, momentum=0.9, weight_decay=0.05, decay="matrices"),
    schedule=Schedule(kind="linear", warmup_steps=4, final_factor=0.1),
)  # fmt: skip


def _csv(path: Path, holder: str) -> Path:
    features, labels = rows(holder, ROWS[holder])
    with path.open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(["label", *(f"x{i}" for i in range(FEATURES))])
        # repr of the float32 widened to float64 reads back as the same float32
        writer.writerows([int(y), *(repr(float(x)) for x in row)] for row, y in zip(features, labels, strict=True))
    return path


@pytest.mark.filterwarnings("ignore:.*lr_scheduler.step.*")
async def test_a_session_equals_plain_pytorch(session_world: Any, tmp_path: Path) -> None:
    archive, weights = build(
        "classifier", features=FEATURES, classes=CLASSES, hidden=HIDDEN, batch_norm=True, dropout=DROPOUT, seed=4
    )
    assert weights is not None
    work = Work(archive, weights, {name: _csv(tmp_path / f"{name}.csv", name) for name in HOLDERS})
    async with session_world(work) as world:
        session = await submitted(
            world, roster=roster(world, STEPS | {"north": None}), steps_per_visit=STEPS["north"], training=OPTIONS
        )
        view = await world.completed(session)
        made, losses = await world.visits(session), await world.losses(session)
        found = await exported(world, session)

    assert [(v["holder"], v["steps"]) for v in made] == [(name, STEPS[name]) for name in HOLDERS] * ROUNDS
    assert view["step"] == ROUNDS * PER_ROUND == len(losses)

    model = first_model(work, batch_norm=True)
    batches = [batch for number in range(ROUNDS) for batch in visits(number + 1, ROWS)]
    # PyTorch's own LinearLR multiplies factor by factor; ours is the closed form: they differ in the last bits.
    expected = train_plain(model, label_losses, batches, OPTIONS, fused=True)
    assert losses == pytest.approx(expected, abs=2e-6)
    plain = model.state_dict()
    assert set(found) == set(plain)
    for name, value in plain.items():
        torch.testing.assert_close(found[name], value, atol=1e-6, rtol=1e-6, msg=name)
    assert found["layers.1.num_batches_tracked"].item() == len(losses)
