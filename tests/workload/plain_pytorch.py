"""Training as a user of PyTorch would write it: its own optimisers, schedulers and clipping. Knows no region and no visit."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from gpu_agent.workload.training import step_seed
from shared.claims.training import SGD, Schedule, TrainingOptions


def _plain_optimizer(model: torch.nn.Module, options: TrainingOptions, fused: bool) -> torch.optim.Optimizer:
    """As a user would write it, with PyTorch's own parameter groups."""
    spec = options.optimizer
    matrices = [p for p in model.parameters() if p.dim() >= 2 or spec.decay == "all"]
    others = [p for p in model.parameters() if p.dim() < 2 and spec.decay == "matrices"]
    groups = [{"params": matrices, "weight_decay": spec.weight_decay}]
    groups += [{"params": others, "weight_decay": 0.0}] if others else []
    if isinstance(spec, SGD):
        return torch.optim.SGD(groups, lr=spec.lr, momentum=spec.momentum, nesterov=spec.nesterov, fused=fused)
    return torch.optim.AdamW(groups, lr=spec.lr, betas=spec.betas, eps=spec.eps, fused=fused)


def _plain_schedule(optimizer: torch.optim.Optimizer, schedule: Schedule, total: int) -> Callable[[], None]:
    """PyTorch's own schedulers, chained: LambdaLR warm-up, then linear or cosine annealing."""
    rate = optimizer.param_groups[0]["lr"]
    warm = schedule.warmup_steps
    span = (schedule.total_steps or total) - warm
    after: torch.optim.lr_scheduler.LRScheduler
    if schedule.kind == "constant":
        after = torch.optim.lr_scheduler.ConstantLR(optimizer, factor=1.0, total_iters=1)
    elif schedule.kind == "linear":
        after = torch.optim.lr_scheduler.LinearLR(optimizer, 1.0, max(schedule.final_factor, 1e-12), span)
    else:
        after = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, span, eta_min=rate * schedule.final_factor)
    if not warm:
        return after.step
    first = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: min(1.0, (step + 1) / warm))
    return torch.optim.lr_scheduler.SequentialLR(optimizer, [first, after], milestones=[warm]).step


def train_plain(
    model: torch.nn.Module,
    loss: Callable[..., Tensor],
    batches: list[dict[str, Tensor]],
    options: TrainingOptions,
    fused: bool,
) -> list[float]:
    optimizer = _plain_optimizer(model, options, fused)
    step_schedule = _plain_schedule(optimizer, options.schedule, len(batches))
    losses = []
    model.train()
    for index, batch in enumerate(batches):
        torch.manual_seed(step_seed(options.seed, index))
        optimizer.zero_grad()
        value = loss(model, batch).mean()
        value.backward()
        if options.grad_clip_norm is not None:
            torch.nn.utils.clip_grad_norm_(model.parameters(), options.grad_clip_norm)
        optimizer.step()
        step_schedule()
        losses.append(value.item())
    return losses


def accumulate_plain(
    model: torch.nn.Module,
    loss: Callable[..., Tensor],
    tours: list[list[dict[str, Tensor]]],
    options: TrainingOptions,
) -> list[float]:
    """Gradient accumulation as a user would write it: one backward a batch, one step a tour, with the mean of the batches' gradients."""
    optimizer = _plain_optimizer(model, options, fused=True)
    step_schedule = _plain_schedule(optimizer, options.schedule, len(tours))
    losses: list[float] = []
    model.train()
    for tour in tours:
        for batch in tour:
            torch.manual_seed(step_seed(options.seed, len(losses)))
            value = loss(model, batch).mean()
            value.backward()
            losses.append(value.item())
        for parameter in model.parameters():
            if parameter.grad is not None:
                parameter.grad /= len(tour)
        if options.grad_clip_norm is not None:
            torch.nn.utils.clip_grad_norm_(model.parameters(), options.grad_clip_norm)
        optimizer.step()
        optimizer.zero_grad()
        step_schedule()
    return losses
