"""Names of the protocol: roles, phases, modes. Vocabulary only; knows no behaviour."""

from __future__ import annotations

from enum import StrEnum
from typing import Final, Literal

CvmRole = Literal["orchestrator", "data_holder"]
"""Whose code a confidential VM runs."""


class Role(StrEnum):
    """What a caller may do at a service (design 8)."""

    OWNER = "owner"
    HOLDER = "holder"
    PLATFORM = "platform"
    ORCHESTRATOR = "orchestrator"
    AUDITOR = "auditor"
    GPU = "gpu"


class TravelMode(StrEnum):
    """What a holder gets of the GPU (design 4.4); `shared.protocol.travel` says what each means."""

    PAPER = "paper"
    SCOPED = "scoped"
    DIRECT = "direct"


class SessionPhase(StrEnum):
    """Life of a training session (design 4.1)."""

    DRAFT = "DRAFT"
    AWAITING_APPROVAL = "AWAITING_APPROVAL"
    READY = "READY"
    RUNNING = "RUNNING"
    PAUSED = "PAUSED"
    COMPLETED = "COMPLETED"
    FAILED = "FAILED"
    CANCELLED = "CANCELLED"


class VisitPhase(StrEnum):
    """The GPU's stay for one holder (design 4.3)."""

    PLANNED = "PLANNED"
    GRANTED = "GRANTED"
    AWAY = "AWAY"
    RETURNED = "RETURNED"
    FENCED = "FENCED"
    VERIFIED = "VERIFIED"
    RECALLED = "RECALLED"
    QUARANTINED = "QUARANTINED"
    LOST = "LOST"


class TrainingPhase(StrEnum):
    """What happens on the GPU with one verified visit (design 4.3)."""

    LOADED = "LOADED"
    TRAINED = "TRAINED"
    VALIDATED = "VALIDATED"
    SCRUBBED = "SCRUBBED"
    CLOSED = "CLOSED"
    RECALLED = "RECALLED"
    REJECTED = "REJECTED"
    QUARANTINED = "QUARANTINED"
    LOST = "LOST"


class RegionPhase(StrEnum):
    """Life of one dataset region inside the GPU; the GPU's own table."""

    CLEAN = "CLEAN"
    GRANTED = "GRANTED"
    FILLING = "FILLING"
    PUBLISHED = "PUBLISHED"
    FENCED = "FENCED"
    IN_USE = "IN_USE"
    DIRTY = "DIRTY"


class RegionKind(StrEnum):
    """What a region of HBM holds."""

    CODE = "code"
    MODEL = "model"
    OPTIMISER = "optimiser"
    COMMITTED = "committed"
    GRADIENTS = "gradients"
    DATASET = "dataset"
    VALIDATION = "validation"


class Backend(StrEnum):
    """Where evidence comes from. A receipt and a page always name it (law L10)."""

    EMULATED = "EMULATED"
    HARDWARE = "HARDWARE"


ORCHESTRATOR_PORT = "orchestrator"
PORT_PATTERN: Final = r"^(orchestrator|holder-[a-z0-9][a-z0-9-]{0,62})$"
"""Of every port of a MUX."""


def holder_port(holder: str) -> str:
    """The MUX port of one holder's confidential VM."""
    return f"holder-{holder}"
