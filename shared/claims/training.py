"""Training options: optimiser, schedule, clipping, batch, seed. All that decides the update besides data and program."""

from __future__ import annotations

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
