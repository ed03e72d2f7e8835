"""Accumulated gradients equal plain accumulation of the same batches bit for bit, and a large batch to rounding."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from gpu_agent.workload.builder import build
from gpu_agent.workload.loader import load_program
from gpu_agent.workload.programs.gpt2 import GPT2, GPT2Config, token_losses
from gpu_agent.workload.tensors import initial_tensors
from shared.claims.layout import plan_memory
from shared.claims.training import SGD, AdamW, Schedule, TrainingOptions
from shared.errors import InvalidProgram
from tests.workload.plain_pytorch import accumulate_plain, train_plain
from tests.workload.workload_helpers import Built, Placed, bytes_tensor, place

CONFIG = GPT2Config(context=16, vocab=256, layers=2, heads=2, width=32)
BATCH = 4
TOURS = ((3, 2), (1, 4, 1), (5,))  # batches of each visit, by tour
OPTIONS = {
    "adamw": TrainingOptions(batch_size=BATCH, optimizer=AdamW(lr=1e-2, weight_decay=0.1)),
    "clipped, cosine": TrainingOptions(
        batch_size=BATCH, optimizer=AdamW(lr=1e-2), grad_clip_norm=0.5, schedule=Schedule(kind="cosine", warmup_steps=1)
    ),
    "sgd": TrainingOptions(batch_size=BATCH, optimizer=SGD(lr=0.1)),
    "sgd, momentum": TrainingOptions(batch_size=BATCH, optimizer=SGD(lr=0.1, momentum=0.9)),
}


def _travelled(built: Built, options: TrainingOptions, tokens: Tensor) -> tuple[Placed, list[float]]:
    """Each visit in a trainer of its own over the bytes that the one before left, as each launch is a process of its own."""
    placed = place(built, options, len(TOURS), accumulate=True)
    losses: list[float] = []
    for tour in TOURS:
        for visit in tour:
            rows = tokens[len(losses) * BATCH :][: visit * BATCH]
            placed = place(built, options, len(TOURS), resume=placed, accumulate=True)
            before = bytes(placed.model)
            result = placed.trainer.train(bytes_tensor(rows), len(rows), len(losses), visit)
            assert bytes(placed.model) == before, "a visit changes no parameter"
            losses += result.steps
        placed = place(built, options, len(TOURS), resume=placed, accumulate=True)
        assert placed.trainer.end_tour(step=True)
    return placed, losses


def _batches(tokens: Tensor) -> list[list[dict[str, Tensor]]]:
    pieces = iter(tokens.split(BATCH))
    return [[{"tokens": next(pieces)} for _ in range(sum(tour))] for tour in TOURS]


def _plain(built: Built) -> GPT2:
    model = GPT2(CONFIG)
    model.load_state_dict(initial_tensors(load_program(built[0]).manifest, built[1]))
    return model


@pytest.mark.filterwarnings("ignore:.*lr_scheduler.step.*")
@pytest.mark.parametrize("name", OPTIONS, ids=str)
def test_tours_equal_plain_accumulation_bit_for_bit(name: str, tiny_gpt2: Built, tokens: Tensor) -> None:
    placed, losses = _travelled(tiny_gpt2, OPTIONS[name], tokens)
    model = _plain(tiny_gpt2)
    assert losses == accumulate_plain(model, token_losses, _batches(tokens), OPTIONS[name])
    for key, value in model.state_dict().items():
        assert torch.equal(placed.params[key], value), key


def test_a_tour_equals_one_large_batch_to_rounding(tiny_gpt2: Built, tokens: Tensor) -> None:
    options = OPTIONS["sgd, momentum"]
    placed, _ = _travelled(tiny_gpt2, options, tokens)
    model = _plain(tiny_gpt2)
    large = [{"tokens": torch.cat([batch["tokens"] for batch in tour])} for tour in _batches(tokens)]
    train_plain(model, token_losses, large, options, fused=True)
    for key, value in model.state_dict().items():
        torch.testing.assert_close(placed.params[key].detach(), value, atol=1e-5, rtol=1e-4, msg=key)


def test_what_is_dropped_leaves_nothing(tiny_gpt2: Built, tokens: Tensor) -> None:
    options = OPTIONS["adamw"]
    placed = place(tiny_gpt2, options, accumulate=True)
    model, optimiser = bytes(placed.model), bytes(placed.optimiser)
    placed.trainer.train(bytes_tensor(tokens), len(tokens), 0, 3)
    assert bytes(placed.optimiser) != optimiser
    assert placed.trainer.end_tour(step=False)
    assert (bytes(placed.model), bytes(placed.optimiser)) == (model, optimiser)


def test_a_tour_of_nothing_and_one_of_no_numbers_step_nowhere(tiny_gpt2: Built, tokens: Tensor) -> None:
    placed = place(tiny_gpt2, OPTIONS["sgd"], accumulate=True)
    before = bytes(placed.model)
    assert not placed.trainer.end_tour(step=True)
    placed.trainer.train(bytes_tensor(tokens), len(tokens), 0, 1)
    accumulator = placed.trainer.accumulator
    assert accumulator is not None
    next(iter(accumulator.sums.values())).view(-1)[0] = float("inf")
    assert not placed.trainer.end_tour(step=True)
    assert bytes(placed.model) == before


def test_without_tours_nothing_is_laid_out_otherwise() -> None:
    manifest = load_program(build("classifier", features=3, classes=2)[0]).manifest
    options = TrainingOptions()
    usual, touring = plan_memory(manifest, options), plan_memory(manifest, options, accumulate=True)
    assert touring.model == usual.model
    assert touring.gradients.length == 0
    assert touring.optimiser.tensors[: len(usual.optimiser.tensors)] == usual.optimiser.tensors


def test_who_accumulates_nothing_ends_no_tour(tiny_gpt2: Built) -> None:
    with pytest.raises(InvalidProgram, match="not accumulated"):
        place(tiny_gpt2, OPTIONS["sgd"]).trainer.end_tour(step=True)
