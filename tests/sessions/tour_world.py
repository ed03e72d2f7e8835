"""What sessions over three holders' labelled rows share: the rows, a classifier, their manifest, its plain twin. Knows no travelling."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import safetensors.torch
import torch
from torch import Tensor

from gpu_agent.workload.builder import build
from gpu_agent.workload.programs.classifier import Classifier
from shared.canonical import sha256
from shared.claims.manifest import Acceptance, RosterEntry, Validation
from shared.claims.training import AdamW, Schedule, TrainingOptions
from tests.sessions.session_world import SessionWorld, Work
from tests.world.world_faults import Point, Trap, crash
from tests.world.world_material import EMULATED, HOLDERS
from tests.world.world_recorder import Recorder

FEATURES, CLASSES, HIDDEN, DROPOUT, B, ROUNDS, ROWS = 5, 3, (12, 8), 0.25, 8, 3, 60
STEPS = {"city": 1, "harbour": 3, "north": 2}
PER_ROUND = sum(STEPS.values())
COMMANDS = "/ports/orchestrator/commands"
USUAL = dict.fromkeys(HOLDERS, ROWS)
Rows = tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]]
Batch = dict[str, Tensor]
Submit = Callable[..., Awaitable[str]]
Check = Callable[[SessionWorld, str, Work], Awaitable[None]]


def options(schedule: Schedule) -> TrainingOptions:
    """What tours are trained with."""
    return TrainingOptions(
        batch_size=B, seed=23, grad_clip_norm=0.8, optimizer=AdamW(lr=0.02, weight_decay=0.05), schedule=schedule
    )


def rows(holder: str, count: int = ROWS) -> Rows:
    """A holder's own."""
    draw = np.random.default_rng(HOLDERS.index(holder))
    features = draw.normal(size=(count, FEATURES)).astype(np.float32)
    return features, (features[:, 0] > 0).astype(np.int64) + (features[:, 1] > 0.5)


def visits(number: int, counts: Mapping[str, int] = USUAL, without: Collection[str] = ()) -> list[Batch]:
    """A round's batches in the order of its visits: each holder's records in file order, wrapping. Rounds count from 1."""
    found: list[Batch] = []
    for holder in (name for name in HOLDERS if name not in without):
        features, labels = rows(holder, counts[holder])
        for at in range((number - 1) * STEPS[holder], number * STEPS[holder]):
            chosen = np.arange(at * B, (at + 1) * B) % counts[holder]
            found.append({"features": torch.from_numpy(features[chosen]), "label": torch.from_numpy(labels[chosen])})
    return found


def built_work(folder: Path) -> Work:
    """The classifier, its weights, and a file of rows for each holder under `folder`."""
    archive, weights = build("classifier", features=FEATURES, classes=CLASSES, hidden=HIDDEN, dropout=DROPOUT, seed=4)
    datasets = {name: folder / f"{name}.npz" for name in HOLDERS}
    for name, path in datasets.items():
        features, labels = rows(name)
        np.savez(path, features=features, label=labels)
    return Work(archive, weights, datasets)


def roster(world: SessionWorld, steps: Mapping[str, int | None] = STEPS) -> tuple[RosterEntry, ...]:
    """Every holder, with steps of its own or, where None, the manifest's."""
    return tuple(
        RosterEntry(holder=name, key=world.key(name).fingerprint, evidence=EMULATED, steps_per_visit=steps[name])
        for name in HOLDERS
    )


async def submitted(world: SessionWorld, **changes: Any) -> str:
    """The id of a session of `ROUNDS` rounds over everybody, without a held-out check unless `changes` say otherwise."""
    fields: dict[str, Any] = {
        "roster": roster(world), "rounds": ROUNDS, "steps_per_visit": 1, "privacy_floor": B, "loss_decimals": 6, "validation": None,
        "buffer_bytes": 8192,
    }  # fmt: skip
    return str(await world.submit(**(fields | changes)))


def first_model(work: Work, batch_norm: bool = False) -> Classifier:
    """What a session of `work` starts from, as plain PyTorch has it."""
    assert work.weights is not None
    model = Classifier(FEATURES, CLASSES, HIDDEN, batch_norm, DROPOUT)
    model.load_state_dict(safetensors.torch.load(work.weights))
    return model


async def exported(world: SessionWorld, session: str) -> dict[str, Tensor]:
    """The session's model."""
    return safetensors.torch.load_file(await world.model_file(session))


def require_same(found: Mapping[str, Tensor], model: torch.nn.Module) -> None:
    """Bit for bit, name by name."""
    expected = model.state_dict()
    assert set(found) == set(expected)
    for name, value in expected.items():
        assert torch.equal(found[name], value), name


async def survived(
    session_world: Any, work: Work, point: Point, who: str, submit: Submit, check: Check, recorder: Recorder | None = None
) -> None:  # fmt: skip
    """A session during which `who` dies at `point`, and which is checked as if nothing had happened."""
    async with session_world(work) as world:
        trap = Trap(world, point, crash(world, who), *([] if recorder is None else [recorder]))
        session = await submit(world)
        await trap.done()
        await check(world, session, work)


async def overshot(world: SessionWorld, submit: Submit, **changes: Any) -> str:
    """A session that trains at a rate at which each step can only overshoot, with held-out records that say so."""
    await world.enrol()
    await world.owner.upload_validation(held_out())
    fields: dict[str, Any] = {
        "training": TrainingOptions(batch_size=B, seed=23, optimizer=AdamW(lr=5.0)), "rounds": 2,
        "acceptance": Acceptance(quarantine_after=1),
        "validation": Validation(dataset=sha256(held_out()).hex(), records=32, max_loss_increase=1e-6),
    }  # fmt: skip
    return await submit(world, **(fields | changes))


def held_out(count: int = 32) -> bytes:
    """Records whose labels are chance."""
    draw = np.random.default_rng(77)
    kind = np.dtype([("features", "<f4", (FEATURES,)), ("label", "<i8")])
    found = np.zeros(count, kind)
    found["features"], found["label"] = draw.normal(size=(count, FEATURES)), draw.integers(CLASSES, size=count)
    return found.tobytes()
