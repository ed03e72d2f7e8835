"""A step as a CUDA device takes it, with tensors of this host: gradients of its own, a loss that is read late, a head of more columns."""

from __future__ import annotations

import math

import pytest
import torch
import torch.nn.functional as F  # noqa: N812  # PyTorch's own convention
from torch import Tensor

from gpu_agent.compute import places, worker
from gpu_agent.compute.arena import Whole
from gpu_agent.compute.places import DevicePlace
from gpu_agent.compute.planned import planned
from gpu_agent.workload import training
from gpu_agent.workload.loader import load_program
from gpu_agent.workload.programs.gpt2 import COLUMNS, GPT2, GPT2Config, token_losses
from gpu_agent.workload.training import Trainer
from shared.claims.layout import plan_memory
from shared.claims.training import AdamW, TrainingOptions
from shared.errors import InvalidProgram
from tests.built import built
from tests.workload.workload_helpers import bytes_tensor, place

OPTIONS = TrainingOptions(optimizer=AdamW(lr=1e-2, weight_decay=0.1), batch_size=4, grad_clip_norm=1.0)
FEATURES, CLASSES = 6, 3


class Late:
    """A reading of this host's: the value as it was when it was asked for, told when it is asked for again."""

    def __init__(self) -> None:
        self._asked = math.nan

    def begin(self, value: Tensor) -> None:
        self._asked = float(value.detach())

    def value(self) -> float:
        return self._asked


def records(count: int) -> Tensor:
    import numpy as np

    kind = np.dtype([("features", "<f4", (FEATURES,)), ("label", "<i8")])
    rows = np.zeros(count, kind)
    rows["features"] = np.random.default_rng(3).standard_normal((count, FEATURES))
    rows["label"] = np.arange(count) % CLASSES
    return bytes_tensor(torch.from_numpy(rows.view(np.uint8).copy()))


def on_a_device(monkeypatch: pytest.MonkeyPatch, given: dict[str, Tensor]) -> tuple[Trainer, dict[str, Tensor]]:
    """A trainer of the classifier as for a device, from these weights; its parameters."""
    monkeypatch.setattr(training, "Reading", Late)
    program = load_program(built("classifier", features=FEATURES, classes=CLASSES)[0])
    params = {name: tensor.detach().clone() for name, tensor in given.items()}
    plan = plan_memory(program.manifest, OPTIONS)
    grads, moments = (
        DevicePlace(Whole(torch.zeros(part.length, dtype=torch.uint8))).tensors(places.Extent(0, part.length), part)
        for part in (plan.gradients, plan.optimiser)
    )
    trainer = Trainer(program, params, grads, moments, {}, OPTIONS, 10, device="cuda:0")
    assert all(not gradient.any() for gradient in grads.values())
    return trainer, params


def test_a_device_takes_the_steps_that_the_host_takes(monkeypatch: pytest.MonkeyPatch) -> None:
    host = place(built("classifier", features=FEATURES, classes=CLASSES), OPTIONS, total_steps=10)
    there, params = on_a_device(monkeypatch, host.params)
    data = records(12)
    told: list[tuple[int, float]] = []
    losses = [
        host.trainer.train(data, 12, 5, 3).steps,
        there.train(data, 12, 5, 3, lambda *step: told.append(step)).steps,
    ]
    assert losses[0] == losses[1] == tuple(loss for _, loss in told)
    assert [step for step, _ in told] == [5, 6, 7]
    assert all(torch.equal(params[name], host.params[name]) for name in params)


def test_a_loss_that_is_no_number_ends_it_before_that_steps_update(monkeypatch: pytest.MonkeyPatch) -> None:
    host = place(built("classifier", features=FEATURES, classes=CLASSES), OPTIONS, total_steps=10)
    there, params = on_a_device(monkeypatch, host.params)
    with torch.no_grad():
        next(iter(params.values())).fill_(math.nan)
    before = {name: tensor.detach().clone() for name, tensor in params.items()}
    losses = there.train(records(12), 12, 0, 3)
    assert (len(losses.steps), losses.finite) == (1, False)
    assert all(torch.equal(params[name].nan_to_num(7), before[name].nan_to_num(7)) for name in params)


@pytest.mark.parametrize("vocab", [COLUMNS, 100])
def test_columns_that_no_token_has_change_no_loss_and_no_gradient(vocab: int) -> None:
    torch.manual_seed(4)
    model = GPT2(GPT2Config(context=8, vocab=vocab, layers=1, heads=2, width=16)).double()
    tokens = torch.randint(0, vocab, (3, 9))
    assert model.wide_logits(tokens[:, :-1]).shape == (3, 8, -(-vocab // COLUMNS) * COLUMNS)
    logits = F.linear(model.ln_f(model.h[0](model.wte(tokens[:, :-1]) + model.wpe.weight)), model.wte.weight)
    plain = F.cross_entropy(logits.transpose(1, 2), tokens[:, 1:], reduction="none").mean(dim=1)
    ours = token_losses(model, {"tokens": tokens})
    torch.testing.assert_close(ours, plain.float())
    torch.testing.assert_close(model(tokens[:, :-1]), logits.float())
    (wanted,) = torch.autograd.grad(plain.mean(), model.wte.weight)
    (found,) = torch.autograd.grad(ours.mean(), model.wte.weight)
    torch.testing.assert_close(found, wanted, rtol=1e-5, atol=1e-9)


class Narrow(DevicePlace):
    """A place where warming up may take a batch of so many records and no more."""

    def __init__(self, most: int) -> None:
        super().__init__(Whole(torch.zeros(1, dtype=torch.uint8)))
        self.most, self.tried = most, list[int]()


@pytest.mark.parametrize(
    "shortage",
    [torch.OutOfMemoryError(), InvalidProgram("not enough memory", code="program-out-of-memory")],
    ids=["in the backward", "in an operator"],
)
@pytest.mark.parametrize(("most", "tried"), [(4, [4]), (1, [4, 1]), (0, [4, 1])])
def test_a_batch_too_large_beside_one_that_trains_is_warmed_up_for_with_one_record(
    monkeypatch: pytest.MonkeyPatch, most: int, tried: list[int], shortage: Exception
) -> None:
    program = load_program(built("classifier", features=FEATURES, classes=CLASSES)[0])
    known = planned(program.manifest, OPTIONS.model_dump(mode="json"), False)
    narrow, run = Narrow(most), worker.run

    def within(launch: worker.Launch, *rest: object) -> object:
        narrow.tried.append(launch.records)
        if launch.records > narrow.most:
            raise shortage
        return run(launch, *rest)  # type: ignore[arg-type]  # as it came

    monkeypatch.setattr(worker, "run", within)
    worker.warm_up(program, known, narrow)
    assert narrow.tried == tried
