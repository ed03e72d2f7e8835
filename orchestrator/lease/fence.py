"""The lease as every transaction meets it: renewed with the commit, or nothing is committed. Knows no event loop and no session."""

from __future__ import annotations

import threading
from collections.abc import Callable

from sqlalchemy import Connection

from orchestrator.lease import rows
from orchestrator.lease.rows import Claimant
from orchestrator.lease.table import LEASE, LeaseFact, LeasePhase
from shared.errors import Unavailable
from shared.names import Role
from shared.service.ways import NOT_LEADER

RETRY_S = 1


def not_leader(detail: str) -> Unavailable:
    """What an orchestrator says that does not lead: nothing was done, and another may do it."""
    return Unavailable(
        detail, code=NOT_LEADER, retry_after_s=RETRY_S,
        remedy="Ask the deployment's other orchestrator, or this one again in a moment.",
    )  # fmt: skip


class Fence:
    """Takes part in every transaction of the store (`shared.service.store.Rider`). Its phase changes on both threads, under a lock.

    Args:
        timer: monotonic seconds. Counted from before a renewal was sent, so this process stops before the database calls it expired.
        deposed: called once a term, on whichever thread found it out.
    """

    def __init__(self, who: Claimant, timer: Callable[[], float], deposed: Callable[[], None]) -> None:
        self._who, self._timer, self._deposed = who, timer, deposed
        self._lock = threading.Lock()
        self._began: float | None = None
        self._until = 0.0
        self.phase, self.token, self.why = LEASE.initial, 0, "it has not taken the lease"

    def taken(self, token: int, began: float) -> None:
        """The lease is ours under `token`, since it was asked for at `began` by our timer. Raises: ProtocolViolation: it was."""
        with self._lock:
            self._move(LeaseFact.TAKEN)
            self.token, self._until = token, began + self._who.lease_s

    def emptied(self) -> None:
        """Nothing of the last term runs any more."""
        with self._lock:
            self._move(LeaseFact.EMPTIED)

    def left_s(self) -> float:
        """Seconds until this process must stop unless it renews; at 0 it is deposed, which this call finds out, too."""
        with self._lock:
            if self.phase is not LeasePhase.LEADER:
                return 0.0
            left = self._until - self._timer()
            if left <= 0:
                self._depose(LeaseFact.EXPIRED, f"the lease could not be renewed within {self._who.lease_s:g} s")
            return max(left, 0.0)

    def write(self, connection: Connection) -> None:
        """Renew, as a part of the transaction.

        Raises:
            Unavailable: code `not-leader`; nothing of the transaction may be committed.
        """
        self._began = None
        self.left_s()
        if self.phase is not LeasePhase.LEADER:
            raise not_leader(f"this orchestrator does not lead: {self.why}")
        began, token = self._timer(), self.token
        if not rows.renew(connection, self._who, token):
            with self._lock:
                if self.phase is LeasePhase.LEADER and self.token == token:
                    self._depose(LeaseFact.REFUSED, "the lease has expired, or another orchestrator holds it")
            raise not_leader(f"this orchestrator does not lead: {self.why}")
        self._began = began

    def settle(self, *, committed: bool) -> None:
        """After the transaction: a renewal counts once it is durable."""
        began, self._began = self._began, None
        with self._lock:
            if committed and began is not None and self.phase is LeasePhase.LEADER:
                self._move(LeaseFact.RENEWED)
                self._until = max(self._until, began + self._who.lease_s)

    def _depose(self, fact: LeaseFact, why: str) -> None:
        self._move(fact)
        self.why = why
        self._deposed()

    def _move(self, fact: LeaseFact) -> None:
        self.phase = LEASE.after(self.phase, fact, Role.ORCHESTRATOR)
