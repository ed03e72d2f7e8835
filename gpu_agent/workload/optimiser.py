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

    `moments`: a list for each of `moment_slots`; `counters`: each parameter's step count, as Adam's kernel wants it: views of `counted`.
    """

    decay: float
    params: list[Tensor]
    moments: tuple[list[Tensor], ...]
    counted: Tensor
    counters: list[Tensor]

    @property
    def grads(self) -> list[Tensor]:
        """Of a parameter that took no part they are zero."""
        return [torch.zeros_like(one) if one.grad is None else one.grad for one in self.params]


class Optimiser:
    """PyTorch's fused AdamW or SGD, whose moments are the caller's tensors.

    Args:
        params: parameters by canonical name, in the manifest's order.
        grads: gradients by the same names; they become each parameter's `.grad`. None: each backward makes its own, as plain PyTorch has
            it, which saves zeroing and adding.
        moments: `exp_avg/<name>` and `exp_avg_sq/<name>`, or `momentum_buffer/<name>`; zero before the first step.
        total_steps: all steps of the session, for the schedule.
    """

    def __init__(
        self,
        params: Mapping[str, Tensor],
        grads: Mapping[str, Tensor] | None,
        moments: Mapping[str, Tensor],
        options: TrainingOptions,
        total_steps: int,
    ) -> None:
        self._options = options
        self._total_steps = total_steps
        self._params = list(params.values())
        self._gradients = None if grads is None else [grads[name] for name in params]
        for parameter, gradient in zip(self._params, self._gradients or (), strict=self._gradients is not None):
            parameter.grad = gradient
        slots = moment_slots(options)
        self._groups = [
            self._group(decay, [params[name] for name in names], [[moments[f"{s}/{n}"] for n in names] for s in slots])
            for (decay, _), names in self._grouped(params).items()
        ]

    @staticmethod
    def _group(decay: float, params: list[Tensor], moments: list[list[Tensor]]) -> _Group:
        counted = torch.zeros(len(params), dtype=torch.float32, device=params[0].device)
        return _Group(decay, params, tuple(moments), counted, list(counted.unbind()))

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
            group.counted.fill_(global_step)

    def zero_grad(self) -> None:
        """Zero the gradients in place, where they are tensors over GPU memory and stay there; else let go of them."""
        if self._gradients is None:
            for parameter in self._params:
                parameter.grad = None
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
        group.counted.add_(1)
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
