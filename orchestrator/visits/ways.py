"""How the orchestrator goes about a visit in each travel mode, as a table: what its batches carry besides, and what must come of that.

Knows commands and answers; no holder and no HTTP route.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import MappingProxyType

from orchestrator.gpu_session.life import Batch
from orchestrator.sessions.visit_state import VisitState
from orchestrator.visits.run import Run
from shared.errors import VerificationFailed
from shared.names import TravelMode
from shared.wire.base import Wire
from shared.wire.gpu import Fetch, Sweep
from shared.wire.gpu_answers import Swept


@dataclass(frozen=True)
class Way:
    """One mode's part in the visit.

    `before_fence`: commands while the visit's epoch is still alive. `after_fence`: between drain and read-back. `check`: holds their
    answers to what was committed; raises VerificationFailed.
    """

    before_fence: Callable[[VisitState], list[Wire]]
    after_fence: tuple[Wire, ...]
    check: Callable[[Run, Batch], None]


def check_swept(run: Run, batch: Batch) -> None:
    """What a key to the whole GPU could have changed besides the measured: the committed copy, and the held-out records.

    Raises:
        VerificationFailed: code `integrity-broken`.
    """
    swept, committed = batch.of(Swept), run.committed
    rules = (
        ("committed model", committed.model, swept.model),
        ("committed optimiser state", committed.optimiser, swept.optimiser),
        ("validation region", run.placement.validation, swept.validation),
    )
    for name, expected, got in rules:
        if got != expected:
            raise VerificationFailed(f"After the fence the GPU's {name} is not what was put there", code="integrity-broken",
                                     expected=expected, got=got)  # fmt: skip


def _only_the_buffer(run: Run, batch: Batch) -> None:
    """The GPU let this mode's keys reach nothing else."""


def _nothing(visit: VisitState) -> list[Wire]:
    """The holder has written by itself."""
    return []


def _fetch(visit: VisitState) -> list[Wire]:
    """The GPU gets the records out of staging; what it found there the fence tells."""
    return [Fetch(epoch=visit.epoch)]


WAYS: Mapping[TravelMode, Way] = MappingProxyType(
    {
        TravelMode.PAPER: Way(before_fence=_nothing, after_fence=(Sweep(),), check=check_swept),
        TravelMode.SCOPED: Way(before_fence=_nothing, after_fence=(), check=_only_the_buffer),
        TravelMode.DIRECT: Way(before_fence=_fetch, after_fence=(), check=_only_the_buffer),
    }
)


def way(run: Run) -> Way:
    """The session's."""
    return WAYS[run.state.manifest.travel_mode]
