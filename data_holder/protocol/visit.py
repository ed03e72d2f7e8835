"""The holder's table of one visit attempt (one epoch). Pure: knows no clock, wire, key or storage.

A restart, a recall or a newer epoch abandons an attempt; the visit then comes again as another attempt under another epoch.
`provisioned` is the GPU's own statement (its acknowledgement of the closing record) as the holder read it.
"""

from __future__ import annotations

from enum import StrEnum

from shared.names import Role
from shared.protocol.machine import Machine, Move


class HolderPhase(StrEnum):
    """Life of one attempt as its holder sees it."""

    IDLE = "IDLE"
    OFFERED = "OFFERED"
    VERIFIED = "VERIFIED"
    ATTACHED = "ATTACHED"
    PROVISIONED = "PROVISIONED"
    REPORTED = "REPORTED"
    DONE = "DONE"
    REFUSED = "REFUSED"
    ABANDONED = "ABANDONED"


class HolderFact(StrEnum):
    """What can happen to an attempt."""

    OFFERED = "offered"
    VERIFIED = "verified"
    ATTACHED = "attached"
    PROVISIONED = "provisioned"
    REPORTED = "reported"
    RECEIVED = "received"
    REFUSED = "refused"
    ABANDONED = "abandoned"
    SUPERSEDED = "superseded"


_P, _F = HolderPhase, HolderFact
_HOLDER, _ORCH = Role.HOLDER, Role.ORCHESTRATOR
_BEFORE_DATA = (_P.OFFERED, _P.VERIFIED)
_OPEN = (*_BEFORE_DATA, _P.ATTACHED, _P.PROVISIONED, _P.REPORTED)

TRANSITIONS = {
    (_P.IDLE, _F.OFFERED): Move(_ORCH, _P.OFFERED),
    # No byte is sealed for an attempt that was not verified: ATTACHED is reachable from VERIFIED alone.
    (_P.OFFERED, _F.VERIFIED): Move(_HOLDER, _P.VERIFIED),
    (_P.VERIFIED, _F.ATTACHED): Move(_HOLDER, _P.ATTACHED),
    (_P.ATTACHED, _F.PROVISIONED): Move(_HOLDER, _P.PROVISIONED),
    (_P.PROVISIONED, _F.REPORTED): Move(_HOLDER, _P.REPORTED),
    # A report whose answer was lost has arrived all the same: the receipt proves it.
    **{(phase, _F.RECEIVED): Move(_ORCH, _P.DONE) for phase in (_P.PROVISIONED, _P.REPORTED)},
    **{(phase, _F.REFUSED): Move(_HOLDER, _P.REFUSED) for phase in (*_BEFORE_DATA, _P.ATTACHED)},
    **{(phase, _F.ABANDONED): Move(_HOLDER, _P.ABANDONED) for phase in _OPEN},
    **{(phase, _F.SUPERSEDED): Move(_ORCH, _P.ABANDONED) for phase in _OPEN},
}
HOLDER_VISIT = Machine("holder's visit", _P.IDLE, TRANSITIONS)
