"""A mixture of buffers trains as pooled data in the same shuffled order does, bit for bit; what it cannot be trained on is named."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from gpu_agent.workload.builder import build
from gpu_agent.workload.loader import load_program
from gpu_agent.workload.mixture import Mixture, PartRefused
from gpu_agent.workload.programs.classifier import Classifier, label_losses
from gpu_agent.workload.programs.gpt2 import GPT2, GPT2Config, token_losses
from gpu_agent.workload.tensors import initial_tensors
from shared.claims.training import SGD, AdamW, Schedule, TrainingOptions
from shared.errors import InvalidData
from shared.protocol.mixture import mixture_order, mixture_seed
from tests.workload.plain_pytorch import train_plain
from tests.workload.workload_helpers import Built, bytes_tensor, place

BATCH, FEATURES, CLASSES = 4, 5, 3
CONFIG = GPT2Config(context=16, vocab=256, layers=2, heads=2, width=32)
PARTS = (12, 4, 8)  # records of each visit
SEED = mixture_seed(23, 1)
OPTIONS = {
    "adamw": TrainingOptions(batch_size=BATCH, optimizer=AdamW(lr=1e-2, weight_decay=0.1)),
    "clipped, cosine": TrainingOptions(
        batch_size=BATCH, optimizer=AdamW(lr=1e-2), grad_clip_norm=0.5, schedule=Schedule(kind="cosine", warmup_steps=1)
    ),
    "sgd, momentum": TrainingOptions(batch_size=BATCH, optimizer=SGD(lr=0.1, momentum=0.9)),
}


def _mixture(pieces: list[Tensor], spare: int = 64) -> Mixture:
    """Each visit's records in a buffer that is longer than they are, as regions are."""
    rest = torch.full((spare,), 255, dtype=torch.uint8)
    return Mixture([(torch.cat([bytes_tensor(piece), rest]), len(piece)) for piece in pieces], SEED)


def _shuffled(pooled: Tensor, steps: int) -> list[Tensor]:
    chosen = mixture_order(SEED, len(pooled)).records(np.arange(steps * BATCH, dtype=np.int64))
    return list(pooled[torch.from_numpy(chosen)].split(BATCH))


@pytest.mark.filterwarnings("ignore:.*lr_scheduler.step.*")
@pytest.mark.parametrize("name", OPTIONS, ids=str)
def test_a_mixture_trains_as_pooled_records_in_its_order_do(name: str, tiny_gpt2: Built, tokens: Tensor) -> None:
    options, pooled = OPTIONS[name], tokens[: sum(PARTS)]
    steps = len(pooled) // BATCH
    placed = place(tiny_gpt2, options, steps)
    losses = placed.trainer.train(_mixture(list(pooled.split(PARTS))), len(pooled), 0, steps)
    model = GPT2(CONFIG)
    model.load_state_dict(initial_tensors(load_program(tiny_gpt2[0]).manifest, tiny_gpt2[1]))
    batches = [{"tokens": batch} for batch in _shuffled(pooled, steps)]
    assert list(losses.steps) == train_plain(model, token_losses, batches, options, fused=True)
    assert losses.records == len(pooled)
    for key, value in model.state_dict().items():
        assert torch.equal(placed.params[key], value), key


def _rows(count: int, seed: int, spoil: Callable[[Any], None] | None = None) -> Tensor:
    draw = np.random.default_rng(seed)
    rows = np.zeros(count, np.dtype([("features", "<f4", (FEATURES,)), ("label", "<i8")]))
    rows["features"] = draw.normal(size=(count, FEATURES))
    rows["label"] = draw.integers(CLASSES, size=count)
    if spoil is not None:
        spoil(rows)
    return torch.from_numpy(np.frombuffer(rows.tobytes(), np.uint8).reshape(count, -1).copy())


def test_records_of_several_fields_are_gathered_whole() -> None:
    """And with dropout, whose draws are of the step and not of whose records are in it."""
    built = build("classifier", features=FEATURES, classes=CLASSES, hidden=(12, 8), dropout=0.25, seed=4)
    options, pieces = OPTIONS["adamw"], [_rows(count, number) for number, count in enumerate(PARTS)]
    pooled = torch.cat(pieces)
    steps = len(pooled) // BATCH
    placed = place(built, options, steps)
    losses = placed.trainer.train(_mixture(pieces), len(pooled), 0, steps)
    model = Classifier(FEATURES, CLASSES, (12, 8), False, 0.25)
    model.load_state_dict(initial_tensors(load_program(built[0]).manifest, built[1]))
    batches = [
        {
            "features": batch[:, : 4 * FEATURES].contiguous().view(torch.float32),
            "label": batch[:, 4 * FEATURES :].contiguous().view(torch.int64).view(-1),
        }
        for batch in _shuffled(pooled, steps)
    ]
    assert list(losses.steps) == train_plain(model, label_losses, batches, options, fused=True)
    for key, value in model.state_dict().items():
        assert torch.equal(placed.params[key], value), key


def test_every_record_is_taken_up_once_and_seeds_make_other_orders() -> None:
    orders = [mixture_order(mixture_seed(23, number), 96).records(np.arange(96)) for number in (1, 2, 1)]
    assert all(sorted(order.tolist()) == list(range(96)) for order in orders)
    assert orders[0].tolist() == orders[2].tolist() != orders[1].tolist()


def test_a_record_that_may_not_be_trained_on_is_named_by_its_visit() -> None:
    def spoil(rows: Any) -> None:
        rows["label"][3] = CLASSES

    built = build("classifier", features=FEATURES, classes=CLASSES, seed=4)
    placed = place(built, OPTIONS["adamw"])
    before = bytes(placed.model)
    pieces = [_rows(12, 0), _rows(4, 1, spoil), _rows(8, 2)]
    with pytest.raises(PartRefused, match=r"Visit 2 of the tour: .*record 3") as caught:
        placed.trainer.train(_mixture(pieces), 24, 0, 6)
    assert (caught.value.part, caught.value.code) == (1, "record-out-of-range")
    assert bytes(placed.model) == before


def test_more_records_than_there_are_are_refused() -> None:
    placed = place(build("classifier", features=FEATURES, classes=CLASSES, seed=4), OPTIONS["adamw"])
    with pytest.raises(InvalidData, match="hold 12 records"):
        placed.trainer.train(_mixture([_rows(12, 0)]), 16, 0, 4)
