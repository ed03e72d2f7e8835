"""Private gradients: against the same written with plain PyTorch, and against records that try to show."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F  # noqa: N812
from pydantic import ValidationError
from torch import Tensor, nn

from gpu_agent.workload.builder import build
from gpu_agent.workload.loader import load_program
from gpu_agent.workload.private import Noise, PrivateGradients, standard_normal
from gpu_agent.workload.source import ProgramSource
from gpu_agent.workload.tensors import initial_tensors
from shared.claims.archive import open_archive
from shared.claims.privacy import Privacy, mixes_samples
from shared.claims.records import RecordField, RecordSchema
from shared.claims.training import SGD, TrainingOptions
from shared.errors import InvalidProgram
from tests.workload.workload_helpers import Built, bytes_tensor, place, repack

FAINT = Privacy(max_grad_norm=0.5, noise_multiplier=1e-3, delta=1e-5)
LOUD = FAINT.model_copy(update={"noise_multiplier": 2.0})
KEY = bytes(range(32))
INDEXES = RecordSchema(fields=(RecordField(name="at", dtype="int64", min=0, max=100),))


@pytest.fixture(scope="module")
def classifier() -> Built:
    return build("classifier", features=6, classes=3, hidden=(16,), seed=4)


def batch(count: int, seed: int = 3) -> dict[str, Tensor]:
    draw = torch.Generator().manual_seed(seed)
    return {
        "features": torch.randn((count, 6), generator=draw), "label": torch.randint(0, 3, (count,), generator=draw),
    }  # fmt: skip


def private(
    built: Built, privacy: Privacy, key: bytes = KEY
) -> tuple[PrivateGradients, dict[str, Tensor], dict[str, Tensor]]:
    """The gradients' maker, the parameters and where the gradients go."""
    program = load_program(built[0])
    tensors = initial_tensors(program.manifest, built[1])
    params = {s.name: tensors[s.name].requires_grad_(True) for s in program.manifest.parameters}
    grads = {name: torch.full_like(p, 7.0).detach() for name, p in params.items()}
    state = {s.name: tensors[s.name] for s in program.manifest.state}
    return PrivateGradients(program, params, grads, state, Noise(privacy, key), seed=1), params, grads


def flat(tensors: dict[str, Tensor]) -> Tensor:
    return torch.cat([t.detach().flatten() for t in tensors.values()])


def by_hand(built: Built, records: dict[str, Tensor], norm: float) -> Tensor:
    """Clip each record's gradient, sum, divide: with autograd alone, over the whole batch's losses at once."""
    program = load_program(built[0])
    tensors = initial_tensors(program.manifest, built[1])
    params = {s.name: tensors[s.name].requires_grad_(True) for s in program.manifest.parameters}
    losses, _ = program.train(params, {}, records)
    total = torch.zeros(sum(p.numel() for p in params.values()))
    for loss in losses:
        gradient = torch.cat([g.flatten() for g in torch.autograd.grad(loss, list(params.values()), retain_graph=True)])
        total += gradient * min(1.0, norm / float(gradient.norm()))
    return total / len(losses)


def test_the_mean_is_that_of_clipped_gradients_and_faint_noise_hardly_moves_it(classifier: Built) -> None:
    maker, _, grads = private(classifier, FAINT)
    records = batch(8)
    maker.fill(records, 0)
    expected = by_hand(classifier, records, 0.5)
    noise = 1e-3 * 0.5 / 8
    assert float((flat(grads) - expected).abs().max()) < 6 * noise
    assert float((flat(grads) - expected).std()) == pytest.approx(noise, rel=0.2)
    assert float(expected.norm()) > 100 * noise, "or the noise could be all there is"


def test_one_record_moves_the_sum_by_no_more_than_the_norm(classifier: Built) -> None:
    """However large: the same noise is drawn here, so that the difference is the record's own part."""
    records = batch(8)
    filled = []
    for scale in (1e6, -1e6, math.nan):  # the last contributes nothing
        maker, _, grads = private(classifier, LOUD)
        maker.fill({**records, "features": records["features"].index_fill(0, torch.tensor([3]), scale)}, 0)
        filled.append(flat(grads))
    moved = [float((found - filled[2]).norm()) * 8 for found in filled[:2]]
    assert max(moved) == pytest.approx(0.5, rel=1e-3)


@pytest.mark.parametrize("share", [0.1, 0.75, 1.5, 1.8, 100.0])
def test_a_gradient_that_is_almost_infinite_moves_it_by_no_more_either(
    share: float, monkeypatch: pytest.MonkeyPatch, classifier: Built
) -> None:
    """`share`: of the factor in the least float32 above zero; what lies between two of those would be rounded to one of them."""
    least, huge = 2.0**-149, 3.3e38
    maker, params, grads = private(classifier, FAINT)
    whole = math.sqrt(sum(p.numel() for p in params.values())) * huge
    maker, params, grads = private(classifier, FAINT.model_copy(update={"max_grad_norm": share * least * whole}))
    gradients = [torch.full_like(p, huge) for p in params.values()]
    monkeypatch.setattr(maker, "_gradient", lambda _record: (1.0, gradients))
    monkeypatch.setattr(maker, "_finish", lambda _step, _size: None)
    maker.fill(batch(1), 0)
    assert float(flat(grads).double().norm()) <= share * least * whole * (1 + 1e-6)


def test_no_norm_is_agreed_on_that_float32_could_not_keep_to() -> None:
    with pytest.raises(ValidationError):
        Privacy(max_grad_norm=1e-10, noise_multiplier=1.0, delta=1e-5)


def test_noise_has_its_deviation_and_depends_on_key_step_and_tensor(classifier: Built) -> None:
    records = batch(8)
    drawn = {}
    for name, key, step in (("a", KEY, 0), ("again", KEY, 0), ("step", KEY, 1), ("key", bytes(32), 0)):
        maker, _, grads = private(classifier, LOUD, key)
        maker.fill(records, step)
        drawn[name] = flat(grads).double() - by_hand(classifier, records, 0.5)
    assert torch.equal(drawn["a"], drawn["again"])
    for name in ("step", "key"):
        assert abs(float(np.corrcoef(drawn["a"].numpy(), drawn[name].numpy())[0, 1])) < 0.25
    everything = torch.cat([drawn["a"], drawn["step"], drawn["key"]])
    assert float(everything.std()) == pytest.approx(2.0 * 0.5 / 8, rel=0.1)


def test_the_noise_is_gaussian() -> None:
    drawn = torch.cat(list(standard_normal(KEY, 1_000_001)))
    assert drawn.numel() == 1_000_001
    assert torch.equal(drawn[:1000], next(standard_normal(KEY, 262_144))[:1000])
    assert abs(float(drawn.mean())) < 5e-3
    for bound, share in ((1.0, 0.682689), (2.0, 0.954500), (3.0, 0.997300), (4.0, 0.999937)):
        assert float((drawn.abs() < bound).double().mean()) == pytest.approx(share, abs=2e-3 if bound < 3 else 3e-4)
    half = drawn[:1_000_000].view(2, -1)
    assert abs(float((half[0] * half[1]).mean())) < 5e-3
    assert len(drawn.unique()) > 999_990, "pieces do not repeat"


def test_training_is_bit_for_bit_repeatable_and_moves_the_model(classifier: Built) -> None:
    options = TrainingOptions(optimizer=SGD(lr=0.1), batch_size=8, seed=1)
    records = batch(32)
    rows = [
        torch.cat((bytes_tensor(f), bytes_tensor(n[None])))
        for f, n in zip(records["features"], records["label"], strict=True)
    ]
    models = []
    for key in (KEY, KEY, bytes(32)):
        placed = place(classifier, options, noise=Noise(LOUD, key))
        start = bytes(placed.model)
        visit = placed.trainer.train(torch.cat(rows), 32, 0, 4)
        assert visit.finite
        assert bytes(placed.model) != start
        models.append(bytes(placed.model))
    assert models[0] == models[1] != models[2]


def test_a_model_that_is_finite_no_more_is_said_to_be_so(classifier: Built) -> None:
    """And by the model alone: under privacy no loss decides anything."""
    bolting = TrainingOptions(optimizer=SGD(lr=1e6, weight_decay=10, decay="all"), batch_size=8, seed=1)
    records = batch(64)
    rows = [torch.cat((bytes_tensor(f), bytes_tensor(n[None]))) for f, n in zip(*records.values(), strict=True)]
    visit = place(classifier, bolting, noise=Noise(LOUD, KEY)).trainer.train(torch.cat(rows), 64, 0, 8)
    assert not visit.finite
    assert len(visit.steps) == 8, "every step was done"


def _looks_up(model: nn.Module, records: dict[str, Tensor]) -> Tensor:
    return model(records["at"]).square().sum(dim=1)


@pytest.fixture(scope="module")
def lookup() -> Built:
    """Fails, in plain training, on any record that says 10 or more."""
    sample = {"at": torch.tensor([1, 2, 3])}
    return build(
        ProgramSource(name="lookup", model=nn.Embedding(10, 4), loss=_looks_up, records=INDEXES, sample=sample)
    )


def test_a_record_on_which_the_program_fails_counts_as_none(lookup: Built) -> None:
    """To fail would tell the owner, whose program it is, what the record says."""
    drawn = []
    for last in (99, 50):
        maker, _, grads = private(lookup, FAINT)
        maker.probe()
        maker.fill({"at": torch.tensor([4, 5, last])}, 0)
        drawn.append(flat(grads))
    assert torch.equal(drawn[0], drawn[1])
    maker, _, grads = private(lookup, FAINT)
    maker.fill({"at": torch.tensor([4, 5, 6])}, 0)
    assert not torch.equal(drawn[0], flat(grads))


def by_name(manifest: dict[str, Any], train: dict[str, Any], evaluation: dict[str, Any]) -> None:
    """The same calls of dropout, with its arguments by their names."""
    for node in train["nodes"] + evaluation["nodes"]:
        if node["op"] == "aten.dropout.default":
            value, p, flag = node["args"]
            node |= {"args": [value], "kwargs": {"p": p, "train": flag}}


@pytest.mark.parametrize("named", [False, True], ids=["by place", "by name"])
def test_a_records_dropout_is_its_places_own(named: bool) -> None:
    """A record that draws nothing, because it fails, must not change what the next one draws."""
    built = build(_dropping())
    if named:
        built = repack(built[0], by_name), built[1]
    found = []
    for first in (99, 50, 3):
        maker, _, grads = private(built, FAINT)
        maker.fill({"at": torch.tensor([first, 5])}, 0)
        found.append(next(iter(grads.values()))[5].clone())
    assert torch.equal(found[0], found[1])
    assert torch.equal(found[0], found[2])


def _dropping() -> ProgramSource:
    class Net(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.table = nn.Embedding(10, 64)

        def forward(self, at: Tensor) -> Tensor:
            return F.dropout(self.table(at), 0.5, self.training)

    def loss(model: nn.Module, records: dict[str, Tensor]) -> Tensor:
        return model(records["at"]).square().sum(dim=1)

    return ProgramSource(name="drops", model=Net(), loss=loss, records=INDEXES, sample={"at": torch.tensor([1, 2, 3])})


def test_a_program_that_fails_on_nobodys_record_is_refused_aloud() -> None:
    """Or it would train on nothing but noise, and nobody would know."""

    def loss(model: nn.Module, records: dict[str, Tensor]) -> Tensor:
        return model(records["at"] - 1).square().sum(dim=1)

    sample = {"at": torch.tensor([1, 2, 3])}
    built = build(ProgramSource(name="picky", model=nn.Embedding(10, 4), loss=loss, records=INDEXES, sample=sample))
    maker, _, _ = private(built, FAINT)
    with pytest.raises(InvalidProgram) as refused:
        maker.probe()
    assert refused.value.code == "program-not-private"


def test_who_mixes_samples_is_known_from_the_graph(
    noisy_classifier: Built, classifier: Built, tiny_gpt2: Built
) -> None:
    mixed = mixes_samples(open_archive(noisy_classifier[0]).graphs["train"])
    assert "num_batches_tracked" in mixed or "batch_norm" in mixed
    for sound in (classifier, tiny_gpt2):
        assert mixes_samples(open_archive(sound[0]).graphs["train"]) == ""


def test_the_key_shows_in_no_repr() -> None:
    assert KEY.hex() not in repr(Noise(LOUD, KEY))
    assert str(KEY) not in repr(Noise(LOUD, KEY))
