"""The record demos' training programs, as a user would write them. Needs PyTorch: only the builder and the judge import it."""

from __future__ import annotations

from collections.abc import Mapping

import torch
import torch.nn.functional as F  # noqa: N812  # PyTorch's own convention
from torch import Tensor, nn

from gpu_agent.workload.source import ProgramSource
from gput.local.demos import digits as images
from gput.local.demos import hospitals as cells
from shared.claims.program import InitRule, SeedInit
from shared.claims.records import RecordField, RecordSchema

HIDDEN = 16


class Diagnosis(nn.Module):
    """Figures of a biopsy, each standardised by declared constants -> logit (B,) of malignant."""

    def __init__(self) -> None:
        super().__init__()
        self.hidden = nn.Linear(len(cells.MEASURES) * len(cells.STATISTICS), HIDDEN)
        self.head = nn.Linear(HIDDEN, 1)

    def forward(self, batch: Mapping[str, Tensor]) -> Tensor:
        # Number by number, so that each constant stands in the graph that holders approve, and none is state of the model.
        figures = [
            (batch[measure.name][:, place] - centre) / spread
            for measure in cells.MEASURES
            for place, (centre, spread) in enumerate(zip(measure.centre, measure.spread, strict=True))
        ]
        logit: Tensor = self.head(F.relu(self.hidden(torch.stack(figures, dim=1))))
        return logit.squeeze(1)


def diagnosis_losses(model: nn.Module, batch: Mapping[str, Tensor]) -> Tensor:
    """Cross-entropy in nats of each record."""
    wanted = batch[cells.LABEL].to(torch.float32)
    return F.binary_cross_entropy_with_logits(model(batch), wanted, reduction="none")


def hospitals() -> ProgramSource:
    """The program of `gput demo hospitals`: ten quantities (3,), each with its valid range, and the diagnosis."""
    fields = [RecordField(name=m.name, dtype="float32", shape=(3,), min=0, max=m.high) for m in cells.MEASURES]
    model = Diagnosis()
    return ProgramSource(
        name="hospitals",
        model=model,
        loss=diagnosis_losses,
        records=RecordSchema(fields=(*fields, RecordField(name=cells.LABEL, dtype="int64", min=0, max=1))),
        description="Malignant or not, from 30 figures of a fine-needle aspirate",
        init=seeded(model),
    )


class Reader(nn.Module):
    """Images (B, 8, 8) of 0 to 16 -> logits (B, 10)."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Conv2d(1, 16, 3, padding=1)
        self.second = nn.Conv2d(16, 32, 3, padding=1)
        self.head = nn.Linear(32 * (images.SIDE // 4) ** 2, images.CLASSES)

    def forward(self, batch: Mapping[str, Tensor]) -> Tensor:
        x = (batch[images.IMAGE] / images.HIGHEST).unsqueeze(1)
        x = F.max_pool2d(F.relu(self.first(x)), 2)
        x = F.max_pool2d(F.relu(self.second(x)), 2)
        logits: Tensor = self.head(x.flatten(1))
        return logits


def digit_losses(model: nn.Module, batch: Mapping[str, Tensor]) -> Tensor:
    """Cross-entropy in nats of each record."""
    return F.cross_entropy(model(batch), batch[images.LABEL], reduction="none")


def digits() -> ProgramSource:
    """The program of `gput demo digits`: two convolutions and a linear layer."""
    side, model = images.SIDE, Reader()
    image = RecordField(name=images.IMAGE, dtype="float32", shape=(side, side), min=0, max=images.HIGHEST)
    label = RecordField(name=images.LABEL, dtype="int64", min=0, max=images.CLASSES - 1)
    return ProgramSource(
        name="digits",
        model=model,
        loss=digit_losses,
        records=RecordSchema(fields=(image, label)),
        description="Which digit, from an image of 8 × 8 pixels",
        init=seeded(model),
    )


def seeded(model: nn.Module, seed: int = 0) -> SeedInit:
    """Initial values that the GPU draws itself: matrices N(0, 1/inputs), everything else 0."""

    def rule(name: str, parameter: Tensor) -> InitRule:
        if parameter.dim() < 2:
            return InitRule(name=name, kind="constant")
        return InitRule(name=name, kind="normal", std=parameter[0].numel() ** -0.5)

    return SeedInit(seed=seed, rules=tuple(rule(name, parameter) for name, parameter in model.named_parameters()))
