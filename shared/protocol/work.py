"""What a session takes of each holder, as its manifest fixes it: visits, steps, records and their bytes. Arithmetic; knows no clock."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from shared.claims.manifest import Manifest

COMPUTE = ("train", "validate")
"""Steps of a visit in which the GPU computes: their time grows with steps of training or held-out records."""
DATA_OR_COMPUTE = ("provision", *COMPUTE)
"""The same, and the one whose time grows with records."""


@dataclass(frozen=True)
class Work:
    """Of one holder, in all rounds, if no visit is left out or repeated. Records that come again count again."""

    holder: str
    visits: int
    steps: int
    records: int
    bytes: int

    @property
    def steps_per_visit(self) -> int:
        return self.steps // self.visits

    @property
    def bytes_per_visit(self) -> int:
        return self.bytes // self.visits


def work_of(manifest: Manifest, holder: str, record_bytes: int) -> Work:
    """What the manifest asks of a holder of its roster, with records of so many bytes."""
    steps = manifest.rounds * manifest.steps_for(holder)
    records = steps * manifest.training.batch_size
    return Work(holder, manifest.rounds, steps, records, records * record_bytes)


def control_s(visit: Mapping[str, Any]) -> float:
    """What a visit (as the orchestrator shows it) cost besides data, training and held-out check, in seconds."""
    return float(sum(s for name, s in visit["durations"].items() if name not in DATA_OR_COMPUTE))


def overhead_s(visit: Mapping[str, Any]) -> float:
    """What a visit cost besides training and held-out check, data included, in seconds: how much longer its holder's turn was."""
    return float(sum(s for name, s in visit["durations"].items() if name not in COMPUTE))
