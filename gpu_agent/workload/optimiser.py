"""Optimiser and schedule of a training session over the caller's own tensors. Knows no program, no data, no visit.

Everything that an update depends on is a tensor of the caller or a function of the global step, so that nothing else needs
to survive between visits.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from shared.claims.layout import moment_slots
from shared.claims.training import SGD, TrainingOptions, learning_rate_factor


class Optimiser:
    """A fused PyTorch optimiser whose moments are the caller's tensors.

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
        self._counters: list[Tensor] = []
        self._optimizer = self._make(params)
        for name, parameter in params.items():
            parameter.grad = grads[name]
            state: dict[str, Tensor] = {slot: moments[f"{slot}/{name}"] for slot in moment_slots(options)}
            if not isinstance(options.optimizer, SGD):
                state["step"] = torch.zeros((), dtype=torch.float32, device=parameter.device)
                self._counters.append(state["step"])
            self._optimizer.state[parameter] = state

    def _make(self, params: Mapping[str, Tensor]) -> torch.optim.Optimizer:
        spec = self._options.optimizer
        everywhere = spec.decay == "all"
        decayed = [p for p in params.values() if everywhere or p.dim() >= 2]
        plain = [p for p in params.values() if not everywhere and p.dim() < 2]
        groups: list[dict[str, Any]] = [
            {"params": group, "weight_decay": decay}
            for group, decay in ((decayed, spec.weight_decay), (plain, 0.0))
            if group
        ]
        if isinstance(spec, SGD):
            return torch.optim.SGD(groups, lr=spec.lr, momentum=spec.momentum, nesterov=spec.nesterov, fused=True)
        return torch.optim.AdamW(groups, lr=spec.lr, betas=spec.betas, eps=spec.eps, fused=True)

    def begin(self, global_step: int) -> None:
        """Say how many steps the model has behind it (Adam's bias correction counts from there)."""
        for counter in self._counters:
            counter.fill_(global_step)

    def zero_grad(self) -> None:
        """Zero the gradients in place: they are tensors over GPU memory and stay there."""
        if self._gradients and self._gradients[0].is_cuda:
            torch._foreach_zero_(self._gradients)  # a few kernels instead of one for each
            return
        for gradient in self._gradients:  # a third of the time of zero_grad(set_to_none=False)
            gradient.zero_()

    def step(self, global_step: int) -> None:
        """Clip, set this step's learning rate, update parameters and moments in place."""
        if self._options.grad_clip_norm is not None:
            torch.nn.utils.clip_grad_norm_(self._params, self._options.grad_clip_norm)
        rate = self._options.optimizer.lr * learning_rate_factor(self._options.schedule, global_step, self._total_steps)
        for group in self._optimizer.param_groups:
            group["lr"] = rate
        self._optimizer.step()
