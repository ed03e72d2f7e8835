"""The visit's table (design 4.3): the GPU's stay for one holder. Only the orchestrator moves it. Knows no storage."""

from __future__ import annotations

from enum import StrEnum

from shared.names import Role, VisitPhase
from shared.protocol.machine import Machine, Move


class VisitFact(StrEnum):
    """One step, one fact, one journal row; a fact is committed before the next outward act that depends on it."""

    PLANNED = "planned"
    GRANTED = "granted"
    OFFERED = "offered"
    REPORTED = "reported"
    FENCED = "fenced"
    VERIFIED = "verified"
    RECALLED = "recalled"
    QUARANTINED = "quarantined"
    LOST = "lost"


_V, _F, _O = VisitPhase, VisitFact, Role.ORCHESTRATOR
_OPEN = (_V.PLANNED, _V.GRANTED, _V.AWAY, _V.RETURNED, _V.FENCED)

TRANSITIONS = {
    (_V.PLANNED, _F.GRANTED): Move(_O, _V.GRANTED),
    (_V.GRANTED, _F.OFFERED): Move(_O, _V.AWAY),
    (_V.AWAY, _F.REPORTED): Move(_O, _V.RETURNED),
    # Law L3: fence before anything is looked at; VERIFIED is reachable from FENCED alone.
    (_V.RETURNED, _F.FENCED): Move(_O, _V.FENCED),
    (_V.FENCED, _F.VERIFIED): Move(_O, _V.VERIFIED),
    **{(phase, _F.RECALLED): Move(_O, _V.RECALLED) for phase in _OPEN},
    **{(phase, _F.LOST): Move(_O, _V.LOST) for phase in _OPEN},
    (_V.FENCED, _F.QUARANTINED): Move(_O, _V.QUARANTINED),
}
VISIT = Machine("visit", _V.PLANNED, TRANSITIONS)
