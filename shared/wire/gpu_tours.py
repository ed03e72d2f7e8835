"""Commands of tours: training on a collected one, the end of an accumulated one. Of `shared.wire.gpu`'s vocabulary; knows no answer."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from shared.claims.visit import VisitId
from shared.wire.base import Wire, WorkKey


class TourPart(Wire):
    """One visit's fenced, published region, and how many records it holds."""

    visit: VisitId
    region: int
    records: int = Field(ge=1)


class TrainTour(Wire):
    """Start training on all of a tour's regions in one shuffled order, which the GPU derives from `seed` (`shared.protocol.mixture`).

    `steps` batches take up each record of each part exactly once. Answer: WorkState, as `train`.
    """

    op: Literal["train_tour"] = "train_tour"
    work: WorkKey
    round: int = Field(ge=1)
    seed: int = Field(ge=0, lt=2**53)
    parts: list[TourPart] = Field(min_length=1, max_length=256)
    first_step: int = Field(ge=0)
    steps: int = Field(ge=1)

    @property
    def records(self) -> int:
        """Of all parts."""
        return sum(part.records for part in self.parts)


class EndTour(Wire):
    """End a tour whose gradients were accumulated: one step with their mean, or, if not `step`, none. Empties the accumulator.

    `batches`: how many the accumulator must hold. Answer: WorkState; `commit` makes it count, and answers with the signed statement.
    """

    op: Literal["end_tour"] = "end_tour"
    work: WorkKey
    round: int = Field(ge=1)
    batches: int = Field(ge=1)
    step: bool
