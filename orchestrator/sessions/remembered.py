"""What a session remembers of its model, checkpoints, datasets and memory: values that its state holds. Knows no fact and no table."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Protocol, Self

from shared.claims.profile import DatasetProfile


class ReadBack(Protocol):
    """What the GPU says of model and optimiser state as they lie in its memory."""

    @property
    def model(self) -> str: ...
    @property
    def optimiser(self) -> str | None: ...
    @property
    def version(self) -> int: ...


@dataclass(frozen=True)
class ModelState:
    """The last committed model: digests (hex) of model and optimiser state, global step, held-out loss if known.

    `optimiser`: None where the GPU was not asked for it yet. `batches`: whose gradients the accumulator holds, which is part of the
    optimiser state; 0 where there is none. `version`: the GPU's number of it, until the GPU is wiped; 0: it has none.
    """

    model: str
    optimiser: str | None
    step: int
    validation: float | None = None
    batches: int = 0
    version: int = field(default=0, compare=False)

    @property
    def weights(self) -> tuple[str, str | None, int]:
        """What a training goes on from, whatever is known of it."""
        return self.model, self.optimiser, self.step

    def reads_as(self, found: ReadBack) -> bool:
        """Whether what the GPU read back is this state. Where a digest of the optimiser's is missing its number has to be the same."""
        if self.model != found.model:
            return False
        if self.optimiser is not None and found.optimiser is not None:
            return self.optimiser == found.optimiser
        return self.version > 0 and self.version == found.version


@dataclass(frozen=True)
class Checkpoint:
    """A sealed file and what it holds: the model after `position` visits of the itinerary. `seconds`: for how long it held the session up,
    if that was written down."""

    name: str
    position: int
    total: int
    state: ModelState
    seconds: float | None


@dataclass(frozen=True)
class Inherited:
    """The checkpoint of its predecessor that a session begins with. The held-out loss it had is of other records, perhaps, and not kept."""

    session: str
    checkpoint: Checkpoint

    @classmethod
    def of(cls, body: dict[str, Any] | None) -> Self | None:
        """From what the session's first fact says."""
        if body is None:
            return None
        model = ModelState(**{**body["checkpoint"]["state"], "validation": None})
        return cls(body["session"], Checkpoint(**{**body["checkpoint"], "state": model, "position": 0}))


@dataclass(frozen=True)
class ApprovedDataset:
    """What a holder committed to when it approved: `root` (hex) over `records` records; `public_key` (hex) is what it signed with.
    `profile`: what it says of its fields; None: nothing."""

    root: str
    records: int
    public_key: str
    profile: DatasetProfile | None = None

    def __deepcopy__(self, memo: object) -> Self:
        return self  # a profile can have thousands of parts, and none of them ever changes


@dataclass(frozen=True)
class Placement:
    """Where things lie in the GPU: region handles by kind, dataset regions, and the digests that must never change.

    `ahead_region` is a second buffer of the same length, where visits are loaded ahead. `validation` is the digest (BLAKE3) of the
    held-out records as they lie there, where the travel mode has it read back. `tour_regions`: where tours are collected, each holder's own
    buffer, by its place in the roster; the first of them is `dataset_region`.
    """

    code: str
    control: str
    model_region: int
    dataset_region: int
    dataset_length: int
    validation_region: int | None
    ahead_region: int | None = None
    validation: str = ""
    dataset_address: int | None = None
    tour_regions: list[int] = field(default_factory=list)


@dataclass(frozen=True)
class JudgedTour:
    """What was decided of a tour before the GPU was told: `work` is the idempotency key of what makes it so; `before`, `after`: held-out
    losses. Until the tour has ended."""

    round: int
    work: str
    stepped: bool
    reason: str
    before: float | None
    after: float | None
