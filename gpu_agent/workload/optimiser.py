"""Optimiser and schedule of a training session over the caller's own tensors. Knows no program, no data, no visit.

Everything that an update depends on is a tensor of the caller or a function of the global step, so that nothing else needs
to survive between visits. The update is PyTorch's own fused kernel, called as `torch.optim` calls it, without that package: importing it
costs 70 MB and most of a second (it brings PyTorch's compiler), which each worker's fork and death then pay for again.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import torch
from torch import Tensor

from shared.claims.layout import moment_slots
from shared.claims.training import SGD, TrainingOptions, learning_rate_factor


@dataclass(frozen=True)
class _Group:
    """What one call of a kernel updates: tensors of one dtype under one weight decay, in the manifest's order.

    `moments`: a list for each of `moment_slots`; `counters`: each parameter's step count, as Adam's kernel wants it.
    """

    decay: float
    params: list[Tensor]
    grads: list[Tensor]
    moments: tuple[list[Tensor], ...]
    counters: list[Tensor]


class Optimiser:
    """PyTorch's fused AdamW or SGD, whose moments are the caller's tensors.

    Args:
        params: parameters by canonical name, in the manifest's order.
        grads: gradients by the same names; they become each parameter's `.grad`.
        moments: `exp_avg/<name>` and `exp_avg_sq/<name>`, or `momentum_buffer/<name>`; zero before the first step.
        total_steps: all steps of the session, for the schedule.
    """

    def __init__(
        self,
        params: Mapping[str, Tensor],
        grads: Mapping[str, Tensor],
        moments: Mapping[str, Tensor],
        options: TrainingOptions,
        total_steps: int,
    ) -> None:
        self._options = options
        self._total_steps = total_steps
        self._params = list(params.values())
        self._gradients = [grads[name] for name in params]
        for parameter, gradient in zip(self._params, self._gradients, strict=True):
            parameter.grad = gradient
        slots = moment_slots(options)
        self._groups = [
            _Group(
                decay,
                [params[name] for name in names],
                [grads[name] for name in names],
                tuple([moments[f"{slot}/{name}"] for name in names] for slot in slots),
                [torch.zeros((), dtype=torch.float32, device=params[name].device) for name in names],
            )
            for (decay, _), names in self._grouped(params).items()
        ]

    def _grouped(self, params: Mapping[str, Tensor]) -> dict[tuple[float, torch.dtype], list[str]]:
        spec = self._options.optimizer
        groups: dict[tuple[float, torch.dtype], list[str]] = {}
        for name, parameter in params.items():
            decay = spec.weight_decay if spec.decay == "all" or parameter.dim() >= 2 else 0.0
            groups.setdefault((decay, parameter.dtype), []).append(name)
        return groups

    def begin(self, global_step: int) -> None:
        """Say how many steps the model has behind it (Adam's bias correction counts from there)."""
        for group in self._groups:
            for counter in group.counters:
                counter.fill_(global_step)

    def zero_grad(self) -> None:
        """Zero the gradients in place: they are tensors over GPU memory and stay there."""
        if self._gradients and self._gradients[0].is_cuda:
            torch._foreach_zero_(self._gradients)  # a few kernels instead of one for each
            return
        for gradient in self._gradients:  # a third of the time of zero_grad(set_to_none=False)
            gradient.zero_()

    def step(self, global_step: int) -> None:
        """Clip, and update parameters and moments in place at this step's learning rate."""
        if self._options.grad_clip_norm is not None:
            torch.nn.utils.clip_grad_norm_(self._params, self._options.grad_clip_norm)
        rate = self._options.optimizer.lr * learning_rate_factor(self._options.schedule, global_step, self._total_steps)
        update = self._sgd if isinstance(self._options.optimizer, SGD) else self._adamw
        with torch.no_grad():
            for group in self._groups:
                update(group, rate)

    def _adamw(self, group: _Group, rate: float) -> None:
        spec = self._options.optimizer
        assert not isinstance(spec, SGD)
        first, second = group.moments
        torch._foreach_add_(group.counters, 1)
        torch._fused_adamw_(
            group.params, group.grads, first, second, [], group.counters, lr=rate, beta1=spec.betas[0],
            beta2=spec.betas[1], weight_decay=group.decay, eps=spec.eps, amsgrad=False, maximize=False,
        )  # fmt: skip

    def _sgd(self, group: _Group, rate: float) -> None:
        spec = self._options.optimizer
        assert isinstance(spec, SGD)
        torch._fused_sgd_(
            group.params, group.grads, group.moments[0] if group.moments else [], weight_decay=group.decay,
            momentum=spec.momentum, lr=rate, dampening=0.0, nesterov=spec.nesterov, maximize=False, is_first_step=False,
        )  # fmt: skip
