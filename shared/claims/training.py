"""Training options: optimiser, schedule, clipping, batch, seed. All that decides the update besides data and program."""

from __future__ import annotations

import math
from typing import Annotated, Literal

from pydantic import Field

from shared.claims import Claim

Positive = Annotated[float, Field(gt=0, le=1e6)]
Fraction = Annotated[float, Field(ge=0, lt=1)]


class AdamW(Claim):
    """Decoupled weight decay Adam. `decay` says which parameters decay: `matrices` = those with two or more dimensions."""

    kind: Literal["adamw"] = "adamw"
    lr: Positive = 1e-3
    betas: tuple[Fraction, Fraction] = (0.9, 0.999)
    eps: Positive = 1e-8
    weight_decay: float = Field(default=0.0, ge=0, le=10)
    decay: Literal["all", "matrices"] = "matrices"


class SGD(Claim):
    """Stochastic gradient descent with optional momentum."""

    kind: Literal["sgd"] = "sgd"
    lr: Positive = 1e-2
    momentum: Fraction = 0.0
    nesterov: bool = False
    weight_decay: float = Field(default=0.0, ge=0, le=10)
    decay: Literal["all", "matrices"] = "matrices"


class Schedule(Claim):
    """Learning-rate factor by global step: linear warm-up over `warmup_steps`, then constant, or linear/cosine decay
    from 1 to `final_factor` at `total_steps` (default: all steps of the session)."""

    kind: Literal["constant", "linear", "cosine"] = "constant"
    warmup_steps: int = Field(default=0, ge=0, le=10**9)
    total_steps: int | None = Field(default=None, ge=1, le=10**9)
    final_factor: float = Field(default=0.0, ge=0, le=1)


class TrainingOptions(Claim):
    """Everything besides data and program that fixes the result; part of the manifest every holder approves."""

    optimizer: Annotated[AdamW | SGD, Field(discriminator="kind")] = AdamW()
    schedule: Schedule = Schedule()
    grad_clip_norm: Positive | None = None
    batch_size: int = Field(default=8, ge=1, le=65536)
    seed: int = Field(default=0, ge=0, lt=2**53)
    threads: int = Field(default=1, ge=1, le=256)


def learning_rate_factor(schedule: Schedule, global_step: int, total_steps: int) -> float:
    """The factor on the learning rate for one step (from 0): linear warm-up, then constant, or decay to `final_factor`.

    The last warm-up step has factor 1; decay starts at 1 and reaches `final_factor` at `schedule.total_steps`
    (default: `total_steps` of the session), where it stays.
    """
    if global_step < schedule.warmup_steps:
        return (global_step + 1) / schedule.warmup_steps
    if schedule.kind == "constant":
        return 1.0
    span = (schedule.total_steps or total_steps) - schedule.warmup_steps
    progress = min(1.0, (global_step - schedule.warmup_steps) / span) if span > 0 else 1.0
    shape = 1.0 - progress if schedule.kind == "linear" else 0.5 * (1.0 + math.cos(math.pi * progress))
    return schedule.final_factor + (1.0 - schedule.final_factor) * shape


def learning(options: TrainingOptions, first_step: int, steps: int, total_steps: int) -> float:
    """Sum of the learning rates of `steps` steps from global step `first_step`: what the size of an update is measured against."""
    factors = (learning_rate_factor(options.schedule, first_step + n, total_steps) for n in range(steps))
    return options.optimizer.lr * sum(factors)
