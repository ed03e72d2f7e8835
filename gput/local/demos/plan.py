"""What every demo states of itself: holders, data, program, training, judgement. Knows no process, no service and no terminal.

The fields are what a person may change; they are kept beside the run, so that it is resumed as it was begun.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, Literal, Self

from gput.tours import Tours
from shared.claims.manifest import Acceptance
from shared.claims.training import TrainingOptions
from shared.errors import BadRequest
from shared.names import TravelMode

HELD_OUT = "held-out"
Step = tuple[str, Sequence[str]]
"""A Python module and its arguments, run in a process of its own: it may need PyTorch, which a launcher must not import."""


@dataclass(frozen=True)
class Plan(ABC):
    """One demo."""

    rounds: int = 6
    steps: int = 12
    batch: int = 16
    seed: int = 1
    validation_records: int = 256
    mode: TravelMode = TravelMode.SCOPED
    tours: Tours | None = None

    name: ClassVar[str]
    """After `gput demo`; the text demo needs none."""
    title: ClassVar[str]
    """The manifest's name."""
    holders: ClassVar[tuple[str, ...]]
    dataset: ClassVar[str]
    """What each holder calls its data."""
    program: ClassVar[str]
    """File name of the program's archive."""
    loss_unit: ClassVar[str]
    one_step_a_round: ClassVar[Mapping[str, int]] = {}
    """What is usual besides where gradients are accumulated."""

    @classmethod
    def of(cls, given: Mapping[str, Any]) -> Self:
        """The usual plan but for what is given; where a round is one step, shorter visits of many more rounds.

        Raises:
            BadRequest: tours in a travel mode in which a holder could read what those before it left.
        """
        plan = cls(**{**(cls.one_step_a_round if given.get("tours") is Tours.ACCUMULATE else {}), **given})
        if plan.tours and plan.mode is TravelMode.PAPER:
            raise BadRequest(
                "there are no tours in travel mode paper", code="tours-mode", remedy="Say --mode scoped or direct."
            )
        return plan

    @property
    def collect(self) -> Literal["visit", "tour"]:
        """The manifest's."""
        return "tour" if self.tours == Tours.COLLECT else "visit"

    @property
    def accumulate(self) -> Literal["tour"] | None:
        """The manifest's."""
        return "tour" if self.tours == Tours.ACCUMULATE else None

    @property
    def acceptance(self) -> Acceptance:
        """The usual one; gradients of single batches, which nothing has clipped, were seen to differ far more than updates do."""
        return Acceptance() if self.accumulate is None else Acceptance(max_update_ratio=50.0)

    def ready(self) -> None:
        """Whether everything that it needs besides this project is there.

        Raises:
            Unavailable: it is not; the remedy says what to install.
        """
        return

    @property
    def command(self) -> str:
        """What starts it."""
        return f"gput demo {self.name}"

    def places(self, target: Path) -> dict[str, Path]:
        """Where below `target` each holder's data lie, and the owner's under `HELD_OUT`."""
        return {name: target / name for name in (*self.holders, HELD_OUT)}

    @abstractmethod
    def split(self, target: Path) -> None:
        """Make the data at their places, unless they are there."""

    @abstractmethod
    def building(self, program: Path) -> Sequence[Step]:
        """What makes the archive `program` (and `program` with suffix .safetensors, if it starts from given weights)."""

    @abstractmethod
    def training(self) -> TrainingOptions:
        """What the manifest says of training."""

    @property
    @abstractmethod
    def judge(self) -> str:
        """Module that loads the exported model into plain PyTorch: given the run's folder, it prints JSON with at least `loss`, `torch`."""

    @abstractmethod
    def result(self, check: Mapping[str, Any]) -> str:
        """What the judge found, for people."""
