"""The lease's row in PostgreSQL: look, take, renew, let go. Knows what a row means from `table` only, and no process.

Taking locks the row, so two takers decide one after the other. Renewing is one statement, a compare-and-set by the database's clock: it
goes with every transaction of the leader, whose commit therefore fails together with its lease. The other way round, a leader that stands
still inside of a transaction keeps the row locked, beyond its lease: then whoever may take it ends that transaction.
"""

from __future__ import annotations

from dataclasses import dataclass

import sqlalchemy as sa
from sqlalchemy import Connection

from orchestrator.lease.table import LeaseRow
from orchestrator.tables import LEASES
from shared.errors import ConfigurationError
from shared.service.engine import STALLED_S
from shared.service.prepared import Prepared

DEPLOYMENT = "orchestrator"
"""One database serves one deployment, so there is one row."""

_WHERE = LEASES.c.name == DEPLOYMENT
_NOW = sa.func.clock_timestamp()
_FIRST = sa.text("INSERT INTO leases (name, token, holder, identity) VALUES (:name, 0, '', '') ON CONFLICT DO NOTHING")
_LOOK = sa.select(
    LEASES.c.token, LEASES.c.holder, LEASES.c.identity, LEASES.c.seal,
    sa.extract("epoch", LEASES.c.expires_at - _NOW).label("left_s"),
).where(_WHERE)  # fmt: skip
_RENEW = Prepared(
    sa.text(
        "UPDATE leases SET expires_at = clock_timestamp() + make_interval(secs => :lease_s) "
        "WHERE name = :name AND holder = :holder AND token = :token AND expires_at > clock_timestamp()"
    )
)
_TAKE = sa.text(
    "UPDATE leases SET token = :token, holder = :holder, identity = :identity, seal = :seal, "
    "expires_at = clock_timestamp() + make_interval(secs => :lease_s) WHERE name = :name"
)
# Whose transaction has the row: its number stands in the row, and whoever runs it holds a lock of that number. Of our own database user
# only: another's we may not end. PostgreSQL does this by itself where it sees that nothing more comes (the engine's idle timeout); of a
# statement that came in half it waits for the rest.
_CLEAR = sa.text(
    "SELECT pg_terminate_backend(pid) FROM pg_stat_activity JOIN pg_locks USING (pid) "
    "JOIN leases ON transactionid = leases.xmax "
    "WHERE leases.name = :name AND locktype = 'transactionid' AND granted AND usename = current_user AND pid <> pg_backend_pid() "
    "AND greatest(xact_start, leases.expires_at) < clock_timestamp() - make_interval(secs => :stalled_s)"
)
_END = sa.text(
    "UPDATE leases SET expires_at = CASE WHEN :released THEN NULL ELSE clock_timestamp() END "
    "WHERE name = :name AND holder = :holder AND token = :token"
)


@dataclass(frozen=True)
class Claimant:
    """Who wants to lead: the process's own name, its deployment's identity (fingerprint, hex), and for how long it takes the lease."""

    holder: str
    identity: str
    lease_s: float


def take(connection: Connection, who: Claimant, *, reclaim: bool) -> LeaseRow | int:
    """The new token if the lease was free and now is `who`'s; else the row that stands, also if its holder has it in a transaction. One
    that is as old as `STALLED_S`, and the lease expired for as long, is ended: the next try finds the row free.

    Raises:
        ConfigurationError: code `standby-differs`: the lease is of another deployment, or its holder did not let go of it.
    """
    row = connection.execute(_LOOK).first()
    if row is None:
        connection.execute(_FIRST, {"name": DEPLOYMENT})
        row = connection.execute(_LOOK).one()
    if not _seen(row).may_take(who.holder, reclaim=reclaim):
        _same_identity(row, who)
        return _seen(row)
    seen, row = _seen(row), connection.execute(_LOOK.with_for_update(skip_locked=True)).first()
    if row is None:
        connection.execute(_CLEAR, {"name": DEPLOYMENT, "stalled_s": STALLED_S})
        return seen
    found = _seen(row)
    _same_identity(row, who)
    if not found.may_take(who.holder, reclaim=reclaim):
        return found
    # The seal of a holder that let go binds nobody: so another release may be started over the same database.
    seal = None if row.left_s is None else row.seal
    values = {"token": row.token + 1, "holder": who.holder, "identity": who.identity, "seal": seal}
    connection.execute(_TAKE, {"name": DEPLOYMENT, "lease_s": who.lease_s, **values})
    return found.token + 1


def led_by_another(connection: Connection, holder: str) -> bool:
    """Whether an orchestrator other than `holder` leads at this moment; not in a database that knows no lease yet."""
    if not sa.inspect(connection).has_table(LEASES.name):
        return False
    row = connection.execute(_LOOK).first()
    return row is not None and not _seen(row).may_take(holder, reclaim=True)


def renew(connection: Connection, who: Claimant, token: int) -> bool:
    """Whether the lease is still `who`'s under `token`; it is then, for `lease_s` from now.

    What has expired is not renewed, even if nobody has taken it.
    """
    values = {"name": DEPLOYMENT, "holder": who.holder, "token": token, "lease_s": who.lease_s}
    return _RENEW.run(connection, values) == 1


def end(connection: Connection, who: Claimant, token: int, *, released: bool) -> None:
    """Hold it no longer. `released`: after a clean stop; else it counts as expired. Somebody else's is left alone."""
    connection.execute(_END, {"name": DEPLOYMENT, "holder": who.holder, "token": token, "released": released})


def seal(connection: Connection, mine: bytes, *, recover: bool) -> None:
    """Write down which measurement leads; called in a transaction of the leader.

    Args:
        mine: 32 bytes made with a key that only this measurement of this deployment has.
        recover: the operator says that the holder before us is lost for good: its sessions' keys come from their holders' shares.

    Raises:
        ConfigurationError: code `standby-differs`: the holder before us had another, and did not let go.
    """
    found = connection.execute(_LOOK).one().seal
    if found is not None and bytes(found) != mine and not recover:
        raise _differs("another measurement, CVM or sealing key")
    connection.execute(sa.update(LEASES).where(_WHERE).values(seal=mine))


def _seen(row: sa.Row[tuple[object, ...]]) -> LeaseRow:
    return LeaseRow(row.token, row.holder, None if row.left_s is None else float(row.left_s))


def _same_identity(row: sa.Row[tuple[object, ...]], who: Claimant) -> None:
    if row.left_s is not None and row.identity != who.identity:
        raise _differs("another identity")


def _differs(what: str) -> ConfigurationError:
    return ConfigurationError(
        f"this orchestrator cannot stand in for the one that holds the lease in this database: it has {what}",
        code="standby-differs",
        remedy="Give both the same release, CVM and shared_dir. To change the release, stop the one that leads first; if it is lost for "
        "good, start this one with --recover: its sessions go on once their holders have given their shares.",
    )
