"""The training phase's table (design 4.3): what happens with one verified visit. Knows no tensor, no storage."""

from __future__ import annotations

from enum import StrEnum

from shared.names import Role, TrainingPhase
from shared.protocol.machine import Machine, Move


class TrainingFact(StrEnum):
    """One step, one fact, one journal row."""

    LOADED = "loaded"
    TRAINED = "trained"
    VALIDATED = "validated"
    REJECTED = "rejected"
    SCRUBBED = "scrubbed"
    CLOSED = "closed"
    RECALLED = "recalled"
    QUARANTINED = "quarantined"
    LOST = "lost"


_T, _F, _O = TrainingPhase, TrainingFact, Role.ORCHESTRATOR
_OPEN = (_T.LOADED, _T.TRAINED, _T.VALIDATED, _T.SCRUBBED)

TRANSITIONS = {
    (_T.LOADED, _F.TRAINED): Move(_O, _T.TRAINED),
    (_T.TRAINED, _F.VALIDATED): Move(_O, _T.VALIDATED),
    (_T.VALIDATED, _F.SCRUBBED): Move(_O, _T.SCRUBBED),
    # Law L7 and design 4.3: no release without a scrub; CLOSED is reachable from SCRUBBED alone.
    (_T.SCRUBBED, _F.CLOSED): Move(_O, _T.CLOSED),
    **{(phase, _F.REJECTED): Move(_O, _T.REJECTED) for phase in (_T.LOADED, _T.TRAINED)},
    **{(phase, _F.RECALLED): Move(_O, _T.RECALLED) for phase in _OPEN},
    **{(phase, _F.LOST): Move(_O, _T.LOST) for phase in _OPEN},
    **{(phase, _F.QUARANTINED): Move(_O, _T.QUARANTINED) for phase in (_T.LOADED, _T.TRAINED)},
}
TRAINING = Machine("training phase", _T.LOADED, TRANSITIONS)
