"""Classifier for feature/label records: a multi-layer perceptron. Knows no archive, no session."""

from __future__ import annotations

from collections.abc import Mapping

import torch
import torch.nn.functional as F  # noqa: N812  # PyTorch's own convention
from torch import Tensor, nn

from gpu_agent.workload.source import ProgramSource
from shared.claims.records import RecordField, RecordSchema
from shared.claims.training import AdamW, TrainingOptions


class Classifier(nn.Module):
    """`features` (B, F) float32 -> logits (B, classes); each hidden layer: linear, BatchNorm?, ReLU, Dropout?."""

    def __init__(self, features: int, classes: int, hidden: tuple[int, ...], batch_norm: bool, dropout: float) -> None:
        super().__init__()
        layers: list[nn.Module] = []
        width = features
        for size in hidden:
            layers.append(nn.Linear(width, size))
            if batch_norm:
                layers.append(nn.BatchNorm1d(size))
            layers.append(nn.ReLU())
            if dropout:
                layers.append(nn.Dropout(dropout))
            width = size
        self.layers = nn.Sequential(*layers)
        self.head = nn.Linear(width, classes)

    def forward(self, features: Tensor) -> Tensor:
        """Logits (B, classes)."""
        logits: Tensor = self.head(self.layers(features))
        return logits


def label_losses(model: nn.Module, batch: Mapping[str, Tensor]) -> Tensor:
    """Cross-entropy in nats of each record; fields `features` (B, F) and `label` (B,)."""
    return F.cross_entropy(model(batch["features"]), batch["label"], reduction="none")


def parse_hidden(hidden: str | int | tuple[int, ...]) -> tuple[int, ...]:
    """Hidden layer widths from `(64, 64)`, `64` or the command line's `"64,64"` (empty: a linear model).

    Raises:
        ValueError: not positive integers.
    """
    parts = hidden.split(",") if isinstance(hidden, str) else (hidden,) if isinstance(hidden, int) else hidden
    sizes = tuple(int(part) for part in parts if str(part).strip())
    if any(size < 1 for size in sizes):
        raise ValueError(f"hidden layer widths must be positive, got {hidden!r}")
    return sizes


def source(
    features: int,
    classes: int,
    hidden: str | int | tuple[int, ...] = (64, 64),
    batch_norm: bool = False,
    dropout: float = 0.0,
    feature_min: float | None = None,
    feature_max: float | None = None,
    seed: int = 0,
) -> ProgramSource:
    """A classifier as a training program: record fields `features` float32 (F,) and `label` int64 in [0, classes)."""
    if features < 1 or classes < 2 or not 0.0 <= dropout < 1.0:
        raise ValueError("features must be at least 1, classes at least 2, dropout in [0, 1)")
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        model = Classifier(features, classes, parse_hidden(hidden), batch_norm, dropout)
    return ProgramSource(
        name="classifier",
        model=model,
        loss=label_losses,
        records=RecordSchema(
            fields=(
                RecordField(name="features", dtype="float32", shape=(features,), min=feature_min, max=feature_max),
                RecordField(name="label", dtype="int64", min=0, max=classes - 1),
            )
        ),
        description=f"Classifier of {features} features into {classes} classes, hidden layers {parse_hidden(hidden)}",
        defaults=TrainingOptions(optimizer=AdamW(lr=1e-3)),
        metadata={"architecture": "mlp-classifier", "features": features, "classes": classes},
    )
