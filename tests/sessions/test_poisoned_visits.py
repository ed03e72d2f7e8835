"""One holder of five poisons: its visits are rolled back, it is visited no more, and the model is as good as without the poison."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import load_file

from gpu_agent.api import GpuUnit
from shared.canonical import sha256
from shared.claims.manifest import Acceptance, Manifest, Validation
from shared.claims.training import SGD, AdamW, TrainingOptions
from shared.names import TravelMode
from tests.adversary.rows import attack
from tests.sessions.session_world import SessionWorld, Work
from tests.world.world import shared_unit
from tests.world.world_canaries import watched
from tests.world.world_material import BATCH, CLASSES, Material, make_material, record, rows

FIVE = ("amber", "birch", "cedar", "dogwood", "elder")
POISONER = "elder"
RECORDS, STEPS, ROUNDS, HELD_OUT = 320, 20, 2, 128
FLIPPED = 0.4


@pytest.fixture(scope="module")
def five(tmp_path_factory: pytest.TempPathFactory) -> Material:
    return make_material(tmp_path_factory.mktemp("five") / "installation", FIVE)


@pytest.fixture(scope="module")
def gpu(five: Material, tmp_path_factory: pytest.TempPathFactory) -> Iterator[GpuUnit]:
    unit = shared_unit(five.copy(tmp_path_factory.mktemp("five-gpu")))
    yield unit
    unit.power_off()


def data(folder: Path, poisoned: bool, scale: float) -> dict[str, Path]:
    folder.mkdir(parents=True)
    found = {}
    for number, name in enumerate(FIVE):
        features, label = rows(RECORDS, 100 + number)
        if poisoned and name == POISONER:
            flipped = np.random.default_rng(1).random(RECORDS) < FLIPPED
            features = (features * scale).astype("<f4")
            label = np.where(flipped, (label + 1) % CLASSES, label)
        found[name] = folder / f"{name}.npz"
        np.savez(found[name], features=features, label=label)
    return found


def held_out() -> bytes:
    features, label = rows(HELD_OUT, 98)
    return b"".join(record(features, label, at) for at in range(HELD_OUT))


def manifest(five: Material, **changes: Any) -> Manifest:
    fields: dict[str, Any] = {
        "rounds": ROUNDS, "steps_per_visit": STEPS, "record_order": "shuffled", "quorum": 4, "buffer_bytes": 1 << 17,
        "training": TrainingOptions(optimizer=AdamW(lr=1e-2), batch_size=BATCH, seed=7),
        "validation": Validation(dataset=sha256(held_out()).hex(), records=HELD_OUT, max_loss_increase=0.02),
    }  # fmt: skip
    return five.manifest(FIVE, **(fields | changes))


@dataclass(frozen=True)
class Ended:
    view: dict[str, Any]
    visits: list[dict[str, Any]]
    accuracy: float


async def ran(
    folder: Path, five: Material, gpu: GpuUnit, agreed: Manifest, *, poisoned: bool, scale: float = 1.0
) -> Ended:
    work = Work(five.archive, five.weights, data(folder / "data", poisoned, scale))
    with watched(folder / "temporary") as traces:
        async with SessionWorld(folder / "world", five, gpu, work, holders=FIVE) as world:
            await world.enrol()
            await world.owner.upload_validation(held_out())
            session = (await world.owner.submit(agreed))["id"]
            view = await world.completed(session)
            visits = await world.visits(session)
            await world.statements(session)
            ended = Ended(view, visits, accuracy(await world.model_file(session)))
    assert traces.canaries(world) == []
    return ended


def accuracy(model: Path) -> float:
    """Share of fresh records that the exported model labels right; the forward pass is written here once more, in NumPy."""
    weights = load_file(model)
    features, label = rows(4000, 5000)
    hidden = np.maximum(features @ weights["layers.0.weight"].T + weights["layers.0.bias"], 0)
    return float(((hidden @ weights["head.weight"].T + weights["head.bias"]).argmax(1) == label).mean())


@pytest.fixture(scope="module")
def clean(tmp_path_factory: pytest.TempPathFactory, five: Material, gpu: GpuUnit) -> Ended:
    return asyncio.run(ran(tmp_path_factory.mktemp("clean") / "run", five, gpu, manifest(five), poisoned=False))


def outcomes(ended: Ended) -> dict[str, list[str]]:
    """How each holder's visits ended; not those that were planned behind one that was not kept, and were planned anew."""
    own = [visit for visit in ended.visits if visit["reason"] != "the visit before it was not kept"]
    return {name: [visit["outcome"] for visit in own if visit["holder"] == name] for name in FIVE}


def test_honest_visits_raise_no_alarm(clean: Ended) -> None:
    assert outcomes(clean) == {name: ["closed"] * ROUNDS for name in FIVE}
    assert not any(holder["quarantined"] or holder["rejected"] for holder in clean.view["holders"])
    assert clean.accuracy > 0.9


STOPPED = "stopped: the held-out check, roll-back, quarantine"


@attack("H15", scoped=STOPPED, direct=STOPPED, paper=STOPPED)
@pytest.mark.parametrize(
    "mode", [m if m is TravelMode.SCOPED else pytest.param(m, marks=pytest.mark.slow) for m in TravelMode]
)
async def test_flipped_labels_cost_less_than_two_points(
    mode: TravelMode, tmp_path: Path, five: Material, gpu: GpuUnit, clean: Ended
) -> None:
    """H15."""
    ended = await ran(tmp_path / "run", five, gpu, manifest(five, travel_mode=mode), poisoned=True)
    assert [o for o in outcomes(ended).pop(POISONER) if o != "recalled"] == ["rejected"]
    assert all(outcomes(ended)[name].count("closed") == ROUNDS for name in FIVE if name != POISONER)
    assert [holder["holder"] for holder in ended.view["holders"] if holder["quarantined"]] == [POISONER]
    (visit,) = (visit for visit in ended.visits if visit["outcome"] == "rejected")
    assert "the held-out loss rose" in visit["reason"]
    assert clean.accuracy - ended.accuracy <= 0.02


@pytest.mark.slow
async def test_without_the_held_out_check_they_cost_more(
    tmp_path: Path, five: Material, gpu: GpuUnit, clean: Ended
) -> None:
    """Or the test above would show nothing."""
    ended = await ran(tmp_path / "run", five, gpu, manifest(five, validation=None), poisoned=True)
    assert outcomes(ended) == {name: ["closed"] * ROUNDS for name in FIVE}
    assert clean.accuracy - ended.accuracy > 0.04


@attack("H15", scoped="stopped: update norms are compared with the session's history")
async def test_an_update_far_larger_than_the_others_is_rolled_back(
    tmp_path: Path, five: Material, gpu: GpuUnit
) -> None:
    """Records within range, and a thousand times as large as everybody's: with plain SGD they would push the model anywhere."""
    agreed = manifest(
        five, rounds=2, steps_per_visit=4, validation=None, acceptance=Acceptance(history=4),
        training=TrainingOptions(optimizer=SGD(lr=0.05), batch_size=BATCH, seed=7),
    )  # fmt: skip
    ended = await ran(tmp_path / "run", five, gpu, agreed, poisoned=True, scale=1000.0)
    assert outcomes(ended) == {name: ["rejected"] if name == POISONER else ["closed"] * 2 for name in FIVE}
    (visit,) = (visit for visit in ended.visits if visit["outcome"] == "rejected")
    assert "times as large as the session's others" in visit["reason"]


@pytest.mark.slow
async def test_where_everybody_is_needed_nobody_is_left_out(tmp_path: Path, five: Material, gpu: GpuUnit) -> None:
    """Without a quorum that allows it the holder's visits go on, and each is judged again."""
    ended = await ran(tmp_path / "run", five, gpu, manifest(five, quorum=None), poisoned=True)
    assert outcomes(ended)[POISONER][0] == "rejected"
    assert len(outcomes(ended)[POISONER]) == ROUNDS
    assert not any(holder["quarantined"] for holder in ended.view["holders"])
