"""What a user's code changes in place is what plain PyTorch makes of it: values, gradients, dtypes, and nothing that lasts."""

from __future__ import annotations

import copy
from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional

from gpu_agent.workload.builder import build
from shared.claims.archive import open_archive
from shared.claims.training import SGD, TrainingOptions
from shared.errors import InvalidProgram
from tests.workload.user_models import same_as_plain, source_of, squares
from tests.workload.workload_helpers import bytes_tensor, place


class _Scaled(nn.Linear):
    """A constant that is changed in place after it was made; each forward makes it anew."""

    def forward(self, input: Tensor) -> Tensor:
        y = super().forward(input)
        if self.training:
            scale = torch.tensor([1.0, 2.0, 3.0, 4.0])
            scale *= 0.5
            y = y * scale
        return y


def test_a_constant_that_is_changed_in_place_is_made_anew_with_each_step() -> None:
    torch.manual_seed(5)
    model = _Scaled(4, 4)
    built = build(source_of(model))
    assert not open_archive(built[0]).graphs["train"].state_outputs
    placed = place(built, TrainingOptions(batch_size=2, optimizer=SGD(lr=0.1)))
    x = torch.randn(8, 4)
    ours = placed.trainer.train(bytes_tensor(x), 8, 0, 4).steps
    plain, model = [], copy.deepcopy(model).train()
    update = torch.optim.SGD(model.parameters(), lr=0.1)
    for part in x.split(2):
        update.zero_grad()
        loss = squares(model, {"x": part}).mean()
        loss.backward()
        update.step()
        plain.append(loss.item())
    assert ours == pytest.approx(plain, rel=1e-6)


def test_a_constant_that_nobody_changes_is_written_as_ever() -> None:
    class Plain(nn.Linear):
        def forward(self, input: Tensor) -> Tensor:
            return super().forward(input) * torch.tensor([0.5, 1.0, 1.5, 2.0])

    assert "aten.clone.default" not in open_archive(build(source_of(Plain(4, 4)))[0]).manifest.operators


class _OwnTensor(nn.Linear):
    """A tensor of the model that is no buffer: changed by a training, its evaluation would not see it."""

    def __init__(self) -> None:
        super().__init__(4, 4)
        self.scale = torch.ones(4)

    def forward(self, input: Tensor) -> Tensor:
        if self.training:
            self.scale.mul_(0.5)
        return super().forward(input) * self.scale


def test_a_tensor_of_the_models_own_that_changes_has_to_be_a_buffer() -> None:
    with pytest.raises(InvalidProgram, match=r"in place with aten.mul_.Tensor, which is no buffer") as refused:
        build(source_of(_OwnTensor()))
    assert "register_buffer" in refused.value.remedy


class _OwnStatistics(nn.Linear):
    """Running statistics that are no buffers: tensors of the model's own, or of the code, where each forward makes them anew."""

    def __init__(self, norm: Callable[..., Tensor], form: str) -> None:
        super().__init__(4, 4)
        self.norm, self.form = norm, form
        self.mean, self.variance = torch.zeros(4), torch.ones(4)

    def forward(self, input: Tensor) -> Tensor:
        made = torch.tensor([0.0, 0.0, 0.0, 0.0]), torch.tensor([1.0, 1.0, 1.0, 1.0])
        mean, variance = made if self.form == "constants" else (self.mean, self.variance)
        uses_batch = self.training and self.form != "frozen"
        if self.norm is functional.instance_norm:
            rows = super().forward(input)[:, :, None].expand(-1, -1, 3) * torch.tensor([1.0, 2.0, 4.0])
            return functional.instance_norm(rows, mean, variance, use_input_stats=uses_batch).sum(dim=2)
        return functional.batch_norm(super().forward(input), mean, variance, training=uses_batch)


@pytest.mark.parametrize("norm", [functional.batch_norm, functional.instance_norm])
@pytest.mark.parametrize("form", ["own", "constants"])
def test_statistics_that_a_training_updates_have_to_be_buffers(norm: Callable[..., Tensor], form: str) -> None:
    """Each graph would have a copy of its own: evaluation would go on with those of before the training."""
    with pytest.raises(InvalidProgram, match=r"in place with aten.\w+_norm.default, which is no buffer") as refused:
        build(source_of(_OwnStatistics(norm, form)))
    assert "register_buffer" in refused.value.remedy


@pytest.mark.parametrize("norm", [functional.batch_norm, functional.instance_norm])
def test_statistics_that_nobody_updates_may_be_the_models_own(norm: Callable[..., Tensor]) -> None:
    torch.manual_seed(8)
    same_as_plain(source_of(_OwnStatistics(norm, "frozen")), {"x": torch.randn(5, 4)})


class _Stopped(nn.Module):
    """Gradients stop at what is detached in place, and go on by a view that was taken before."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second, self.beside = nn.Linear(4, 4), nn.Linear(4, 4), nn.Linear(4, 4)

    def forward(self, x: Tensor) -> Tensor:
        hidden = self.first(x).tanh() + self.beside(x)
        before = hidden * 2.0
        hidden.detach_()
        return self.second(hidden) * hidden + before.square()


def test_gradients_stop_where_the_user_stopped_them() -> None:
    torch.manual_seed(6)
    same_as_plain(source_of(_Stopped()), {"x": torch.randn(5, 4)})


class _Narrow(nn.Module):
    """Sums of two dtypes, which stay of the one that is changed."""

    def __init__(self) -> None:
        super().__init__()
        self.a, self.b = nn.Linear(4, 4), nn.Linear(4, 4)

    def forward(self, x: Tensor) -> Tensor:
        h = self.a(x).to(torch.bfloat16)
        h += self.b(x)
        h *= torch.tensor([1.0, 2.0, 3.0, 4.0])
        count = torch.tensor([1, 2, 3, 4], dtype=torch.int32)
        count += torch.tensor([2**31, 0, 1, 2])
        return h.to(torch.float32) + count.to(torch.float32)


def test_what_is_changed_in_place_keeps_its_dtype() -> None:
    torch.manual_seed(7)
    same_as_plain(source_of(_Narrow()), {"x": torch.randn(5, 4)})
