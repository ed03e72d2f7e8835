"""What two snapshots of the model say of the records between them: in travel mode `paper` a holder recovers another's record."""

from __future__ import annotations

import numpy as np

from shared.claims.layout import plan_memory
from shared.claims.privacy import Privacy
from shared.claims.training import SGD, TrainingOptions
from shared.names import RegionKind, TravelMode
from shared.wire import gpu
from tests.adversary.rows import attack
from tests.adversary.visitor import Visitors
from tests.gpu.gpu_world import FEATURES, World, manifest, records
from tests.gpu.test_gpu_paper import Attacker

LR = 0.01
ONE_BY_ONE = TrainingOptions(optimizer=SGD(lr=LR), batch_size=1, seed=7)


def snapshot(visitors: Visitors, holder: str) -> dict[str, np.ndarray]:
    """A visit in which the holder only reads the model, and brings nothing: it is recalled, and nobody is the wiser."""
    world = visitors.world
    visitor = visitors.install(records(8, seed=5), holder=holder, port=f"holder-{holder}")
    place = world.region(RegionKind.MODEL)
    data = Attacker(visitor).read(place.address, place.length)
    visitors.fence(visitor)
    world.run(gpu.Scrub(region=visitor.grant.region))
    return {
        t.spec.name: np.frombuffer(data, "<f4", t.size_bytes // 4, t.offset).reshape(t.spec.shape)
        for t in plan_memory(manifest(), ONE_BY_ONE).model.tensors
    }


def inverted(before: dict[str, np.ndarray], after: dict[str, np.ndarray]) -> np.ndarray:
    """The record of one step: of a linear layer's row, the weights' gradient is the bias's gradient times the input."""
    layer = next(
        name.removesuffix(".weight") for name, w in before.items() if w.shape[-1:] == (FEATURES,) and w.ndim == 2
    )
    weights = (before[f"{layer}.weight"] - after[f"{layer}.weight"]) / LR
    bias = (before[f"{layer}.bias"] - after[f"{layer}.bias"]) / LR
    row = int(np.abs(bias).argmax())
    found: np.ndarray = weights[row] / bias[row]
    return found


def sandwiched(device: World, secret: bytes, privacy: Privacy | None = None) -> np.ndarray:
    """What two holders make of the record of the one between them."""
    visitors = Visitors(device, TravelMode.PAPER)
    visitors.set_up(options=ONE_BY_ONE, privacy=privacy)
    before = snapshot(visitors, "south")
    victim = visitors.visit(secret, holder="north")
    device.train(victim, steps=1)
    visitors.close(victim)
    after = snapshot(visitors, "west")  # the second of two that collude, or the same once more
    return inverted(before, after)


@attack(
    "H16 C02", paper="open: snapshots of the model around a visit give its record away, where no privacy is asked for"
)
def test_in_paper_two_snapshots_give_the_record_between_them_away(device: World) -> None:
    secret = records(1, seed=77)
    found, features = sandwiched(device, secret), np.frombuffer(secret, "<f4", FEATURES)
    assert np.abs(found - features).max() < 1e-2
    others = np.frombuffer(records(1, seed=78), "<f4", FEATURES)
    assert np.abs(found - others).max() > 0.5, "or anything would count as found"


@attack(
    "H16 C02", paper="open: the model is read all the same; where privacy is asked for, noise hides the record in it"
)
def test_in_paper_noise_hides_the_record_between_two_snapshots(device: World) -> None:
    secret = records(1, seed=77)
    noisy = sandwiched(device, secret, Privacy(max_grad_norm=1.0, noise_multiplier=1.0, delta=1e-5))
    assert np.abs(noisy - np.frombuffer(secret, "<f4", FEATURES)).max() > 0.5
