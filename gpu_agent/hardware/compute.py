"""The compute engines as the device sees them: launch, news, destruction. Knows no tensor, no process and no clock.

One launch runs in memory of its own that is destroyed afterwards (design 5): records do not survive in anybody's heap.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal, Protocol

from gpu_agent.hardware.hbm import Extent


@dataclass(frozen=True)
class Part:
    """One of several extents of records, and how many records it holds."""

    data: Extent
    records: int


@dataclass(frozen=True)
class Launch:
    """One kernel launch descriptor. `code_digest` is the BLAKE3 (hex) of the archive that lies in `code`.

    `seed` fills the model by the program's own rules; `train` and `evaluate` read `records` records from `data`; `step` and `drop` read
    none: they end a tour with a step, or without. `losses`: whether the device wants to hear of them. `privacy` (a
    `shared.claims.privacy.Privacy` as JSON) and `noise_key` (hex) make a training private. `accumulate`: a training adds gradients up.
    `parts` (in place of `data`) are trained on in one order, shuffled by `seed`. `own`: no record of a holder's is read.
    """

    kind: Literal["seed", "train", "evaluate", "step", "drop"]
    code: Extent
    code_digest: str
    model: Extent
    gradients: Extent
    optimiser: Extent
    committed: Extent
    data: Extent | None
    records: int
    first_step: int
    steps: int
    total_steps: int
    options: dict[str, object]
    losses: bool = True
    own: bool = False
    accumulate: bool = False
    parts: tuple[Part, ...] = ()
    seed: int = 0
    privacy: dict[str, object] | None = None
    noise_key: str = field(default="", repr=False)


@dataclass(frozen=True)
class StepDone:
    """One step's update is in the model; `loss` is the mean over its batch, unrounded; None where the launch does not tell, or it is no
    number."""

    step: int
    loss: float | None


@dataclass(frozen=True)
class Finished:
    """The launch came to its end. `loss`: mean over all records, NaN where the launch does not tell.
    `seconds`: wall time of the work itself, on the compute's clock. `beside`: most bytes that a training took at once beside HBM; None: it
    was none, or they cannot be counted. `kept`: all that it took of a device it still holds, so that nobody else can have got any of it."""

    loss: float
    records: int
    steps: int
    seconds: float
    finite: bool
    update_norm: float | None
    beside: int | None = None
    kept: bool = False


@dataclass(frozen=True)
class Failed:
    """The launch ended early; `code` and `detail` are public and quote no record. `part`: whose records it failed on, from 0, where it had
    several."""

    code: str
    detail: str
    part: int | None = None


@dataclass(frozen=True)
class Destroyed:
    """The launch's memory no longer exists. Always the last news of a launch."""


News = StepDone | Finished | Failed | Destroyed


@dataclass
class Loaded:
    """What loading the code region gave: whether the graph had to be built anew."""

    rebuilt: bool = field(default=False)


class Compute(Protocol):
    """The seam to the compute engines."""

    def load(self, code: Extent, code_digest: str) -> Loaded:
        """Build the program that lies in `code`, or find it built.

        Raises:
            InvalidProgram: it cannot be built. VerificationFailed: the bytes there have another digest.
            Unavailable: no compute engine.
        """

    def start(self, launch: Launch) -> None:
        """Begin a launch; at most one at a time.

        Raises:
            Unavailable: no compute engine.
        """

    @property
    def wakes(self) -> int:
        """How often `wake` was called."""

    def news(self, timeout_s: float, since: int | None = None) -> list[News]:
        """What happened since the last call, in order; waits up to `timeout_s` if nothing did. `since`: as many `wakes` are known to the
        caller; one more, and nothing is waited for."""

    def wake(self) -> None:
        """Let a `news` that waits, or is about to, return at once."""

    def destroy(self) -> list[News]:
        """End the launch, if one runs, and return when its memory is gone; the rest of its news."""

    def close(self) -> None:
        """Destroy everything, for good."""
