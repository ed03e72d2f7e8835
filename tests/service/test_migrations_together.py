"""Two services that start together over one empty PostgreSQL: one makes the tables, the other waits for it. Knows no table."""

from __future__ import annotations

import time
from concurrent.futures import ThreadPoolExecutor

import sqlalchemy as sa

from shared.service.migrations import ONE_AT_A_TIME, check_schema, upgrade

PACKAGE = "orchestrator"
PATIENCE_S = 60.0


def engine(url: str) -> sa.Engine:
    return sa.create_engine(sa.make_url(url).set(drivername="postgresql+psycopg"), isolation_level="AUTOCOMMIT")


def waiting(connection: sa.Connection) -> int:
    """Sessions that wait for an advisory lock."""
    query = "SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND NOT granted"
    return int(connection.exec_driver_sql(query).scalar_one())


def test_an_upgrade_waits_for_who_changes_the_schema(postgres_url: str) -> None:
    with engine(postgres_url).connect() as connection, ThreadPoolExecutor(2) as pool:
        connection.exec_driver_sql(f"SELECT pg_advisory_lock({ONE_AT_A_TIME})")
        starts = [pool.submit(upgrade, postgres_url, PACKAGE) for _ in range(2)]
        ends = time.monotonic() + PATIENCE_S
        while waiting(connection) < len(starts) and time.monotonic() < ends:
            assert not any(start.done() for start in starts)
        tables = connection.exec_driver_sql("SELECT count(*) FROM pg_tables WHERE schemaname = 'public'").scalar_one()
        assert tables == 0
        connection.exec_driver_sql(f"SELECT pg_advisory_unlock({ONE_AT_A_TIME})")
        for start in starts:
            start.result(PATIENCE_S)
    check_schema(postgres_url, PACKAGE)
