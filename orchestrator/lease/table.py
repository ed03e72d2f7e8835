"""What a lease is, as data: the phases of one orchestrator, and when the row may be taken. Knows no SQL and no clock.

Time is the database's: `left_s` is measured there. A machine's own clock decides one thing only, and only against itself: when to stop.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from shared.names import Role
from shared.protocol.machine import Machine, Move


class LeasePhase(StrEnum):
    """Of one orchestrator process. Only a LEADER drives sessions, answers /v1 and writes to the database."""

    FOLLOWER = "FOLLOWER"
    LEADER = "LEADER"
    DEPOSED = "DEPOSED"


class LeaseFact(StrEnum):
    """TAKEN: the row is ours. EXPIRED: not renewed in time. REFUSED: the row is not ours any more. EMPTIED: nothing of the term runs."""

    TAKEN = "taken"
    RENEWED = "renewed"
    EXPIRED = "expired"
    REFUSED = "refused"
    EMPTIED = "emptied"


def _to(phase: LeasePhase) -> Move[LeasePhase]:
    return Move(Role.ORCHESTRATOR, phase)


LEASE: Machine[LeasePhase, LeaseFact] = Machine(
    "lease",
    LeasePhase.FOLLOWER,
    {
        (LeasePhase.FOLLOWER, LeaseFact.TAKEN): _to(LeasePhase.LEADER),
        (LeasePhase.LEADER, LeaseFact.RENEWED): _to(LeasePhase.LEADER),
        (LeasePhase.LEADER, LeaseFact.EXPIRED): _to(LeasePhase.DEPOSED),
        (LeasePhase.LEADER, LeaseFact.REFUSED): _to(LeasePhase.DEPOSED),
        # A clean stop ends the term first and lets go of the row last; nothing is written in between.
        (LeasePhase.LEADER, LeaseFact.EMPTIED): _to(LeasePhase.FOLLOWER),
        (LeasePhase.DEPOSED, LeaseFact.EMPTIED): _to(LeasePhase.FOLLOWER),
    },
)


@dataclass(frozen=True)
class LeaseRow:
    """The row as the database sees it now.

    `token` grows with every taking and is never given twice. `left_s`: seconds until it expires by the database's clock, not positive
    once it has; None: nobody holds it, because its holder let go of it or there was none yet.
    """

    token: int
    holder: str
    left_s: float | None

    def may_take(self, holder: str, *, reclaim: bool) -> bool:
        """Whether `holder` may take it. `reclaim`: the caller knows that no process works under its own name any more."""
        return self.left_s is None or self.left_s <= 0 or (reclaim and self.holder == holder)
