"""One SQLAlchemy engine for SQLite or PostgreSQL by URL, and what its failures mean. Knows no table and no thread."""

from __future__ import annotations

import os
import sqlite3
from pathlib import Path
from typing import Any, Literal

import sqlalchemy as sa
from sqlalchemy.engine import URL, Engine, make_url
from sqlalchemy.exc import ArgumentError, DBAPIError, InterfaceError, OperationalError

from shared.errors import ConfigurationError, GputError, Unavailable
from shared.service.prepared import run_text

BUSY_TIMEOUT_MS = 5000
CACHED_KIB = 1024
"""How much of its file a connection to SQLite keeps in memory: the kernel keeps the rest, and every holder is a process of its own."""
CONNECT_TIMEOUT_S = 5
SILENT_S = 20
"""How long a database server's machine may be silent before the connection to it counts as lost."""
STALLED_S = 3
"""How long PostgreSQL keeps a transaction open for a process that stands still in the middle of it, and everybody's way barred. Its clock
starts with the answer to a statement, and a Flush message stops it until the next one; psycopg's `executemany` ends with such a message."""

Dialect = Literal["sqlite", "postgresql"]
Access = Literal["write", "read"]

_DISK_FULL = {"53100"}  # PostgreSQL disk_full
_READ_ONLY = "25006"  # PostgreSQL read_only_sql_transaction: a standby, after a fail-over
_SQLITE_UNREACHABLE = {
    sqlite3.SQLITE_BUSY,
    sqlite3.SQLITE_LOCKED,
    sqlite3.SQLITE_CANTOPEN,
    sqlite3.SQLITE_READONLY,
    sqlite3.SQLITE_PERM,
    sqlite3.SQLITE_AUTH,
}
_SQLITE_DAMAGED = {sqlite3.SQLITE_NOTADB, sqlite3.SQLITE_CORRUPT}


def parse_url(url: str) -> URL:
    """A database URL this code serves, with the driver it uses.

    Raises:
        ConfigurationError: not a URL, another database, or SQLite in memory.
    """
    remedy = "Use sqlite:////folder/file.db or postgresql://user@host/name."
    try:
        parsed = make_url(url)
    except (ArgumentError, ValueError):
        # The URL itself stays out of the message: it may carry a password.
        raise ConfigurationError("database_url is not a database URL", remedy=remedy) from None
    backend = parsed.get_backend_name()
    if backend == "sqlite":
        if parsed.database in (None, "", ":memory:"):
            # Reader and writer have a connection each; an in-memory database would be two.
            raise ConfigurationError(
                "database_url names SQLite in memory, which would not survive a restart", remedy=remedy
            )
        return parsed.set(drivername="sqlite+pysqlite")
    if backend == "postgresql":
        return parsed.set(drivername="postgresql+psycopg")
    raise ConfigurationError(f"database_url names {backend}, which is not supported", remedy=remedy)


def dialect_of(url: URL) -> Dialect:
    """Which of the two databases a parsed URL names."""
    return "sqlite" if url.get_backend_name() == "sqlite" else "postgresql"


def create_engine(url: URL, access: Access) -> Engine:
    """An engine of one connection, used by one thread at a time.

    A writer's transaction begins with BEGIN IMMEDIATE on SQLite: the lock is taken before anything is read, so that
    read-then-write cannot lose an update. Statements' parameters are kept out of every error text and log.
    """
    if dialect_of(url) == "sqlite":
        return _sqlite_engine(url, access)
    # A machine that vanishes says nothing any more: without these the kernel would wait for it for a quarter of an hour.
    silence = {
        "keepalives_idle": SILENT_S // 2,
        "keepalives_interval": SILENT_S // 10,
        "tcp_user_timeout": SILENT_S * 1000,
    }
    options: dict[str, Any] = {"pool_pre_ping": True, "connect_args": {"connect_timeout": CONNECT_TIMEOUT_S, **silence}}
    if access == "read":
        options["execution_options"] = {"isolation_level": "REPEATABLE READ", "postgresql_readonly": True}
    engine = sa.create_engine(url, pool_size=1, max_overflow=0, hide_parameters=True, **options)

    @sa.event.listens_for(engine, "connect")
    def configure(connection: Any, _record: object) -> None:
        connection.execute(f"SET idle_in_transaction_session_timeout = {STALLED_S * 1000}")
        connection.commit()

    @sa.event.listens_for(engine, "do_executemany")
    def one_by_one(cursor: Any, statement: str, rows: Any, _context: object) -> bool:
        """In place of the driver's `executemany`, which stops the clock of STALLED_S."""
        for row in rows:
            cursor.execute(statement, row)
        return True

    return engine


def _sqlite_engine(url: URL, access: Access) -> Engine:
    engine = sa.create_engine(
        url,
        pool_size=1,
        max_overflow=0,
        poolclass=sa.pool.QueuePool,
        hide_parameters=True,
        # The reader's connection is opened on one thread and closed on another, never used by two at once.
        connect_args={"check_same_thread": False, "timeout": BUSY_TIMEOUT_MS / 1000},
    )

    @sa.event.listens_for(engine, "connect")
    def configure(connection: sqlite3.Connection, _record: object) -> None:
        connection.isolation_level = None  # the driver must not begin or commit by itself
        connection.text_factory = _text
        cursor = connection.cursor()
        cursor.execute("PRAGMA journal_mode=WAL")
        # FULL: the WAL is synced at every commit. A fact must outlive a power cut before the act that depends on it;
        # NORMAL would keep the file sound but could forget the last facts.
        cursor.execute("PRAGMA synchronous=FULL")
        cursor.execute("PRAGMA foreign_keys=ON")
        cursor.execute(f"PRAGMA cache_size=-{CACHED_KIB}")
        cursor.execute(f"PRAGMA busy_timeout={BUSY_TIMEOUT_MS}")
        if access == "read":
            cursor.execute("PRAGMA query_only=ON")
        cursor.close()

    @sa.event.listens_for(engine, "begin")
    def begin(connection: sa.Connection) -> None:
        run_text(connection, "BEGIN IMMEDIATE" if access == "write" else "BEGIN")

    return engine


def _text(stored: bytes) -> str:
    """A cell of text. One that a flipped bit has made no UTF-8 is other text than was written, as its MAC or its reader finds: the driver's
    own reading would fail the whole statement, take every other row away from whoever asks for all, and quote the cell in its error."""
    return stored.decode("utf-8", "replace")


def place(url: URL) -> str:
    """The database in words, without user or password."""
    if dialect_of(url) == "sqlite":
        return f"SQLite file {Path(url.database or '')}"
    return f"PostgreSQL database {url.database} at {url.host or url.query.get('host', 'local socket')}"


def translate(error: DBAPIError, url: URL) -> GputError | None:
    """What a failure of the database means for the caller, or None when it is the statement's own fault."""
    if _is_disk_full(error, url):
        return Unavailable(
            f"no space left for {place(url)}",
            code="disk-full",
            remedy="Free space on the volume of the database; nothing was half written, and the request can be repeated.",
        )
    if isinstance(error.orig, sqlite3.Error) and _sqlite_code(error.orig) == sqlite3.SQLITE_IOERR:
        return Unavailable(
            f"{place(url)} cannot be read or written: {_first_line(error)}",
            code="disk-unusable",
            remedy="Check the volume of the database: its health, and the room and quota left on it.",
        )
    if isinstance(error.orig, sqlite3.Error) and _sqlite_code(error.orig) in _SQLITE_DAMAGED:
        return ConfigurationError(
            f"{place(url)} is damaged or is not a database: {_first_line(error)}",
            code="database-damaged",
            remedy="Restore it from a backup, or move it away to start with an empty one.",
        )
    if _is_unreachable(error):
        return Unavailable(
            f"{place(url)} cannot be reached: {_first_line(error)}",
            code="database-unreachable",
            remedy="Check that the database runs, that its path or address is right and that no other program holds it.",
        )
    return None


def touch(connection: sa.Connection) -> None:
    """Make this transaction's commit write something, and nothing that anybody reads."""
    if connection.dialect.name == "sqlite":
        version = connection.exec_driver_sql("PRAGMA user_version").scalar_one()
        connection.exec_driver_sql(f"PRAGMA user_version = {int(version)}")
    else:
        connection.exec_driver_sql("SELECT pg_current_xact_id()")


def _is_disk_full(error: DBAPIError, url: URL) -> bool:
    origin = error.orig
    if isinstance(origin, sqlite3.Error):
        # Where SQLite extends its shared-memory index, a full volume is an I/O error like any other.
        code = _sqlite_code(origin)
        return code == sqlite3.SQLITE_FULL or (code == sqlite3.SQLITE_IOERR and not _has_room(url))
    return getattr(origin, "sqlstate", None) in _DISK_FULL


def _has_room(url: URL) -> bool:
    try:
        return os.statvfs(Path(url.database or "").parent).f_bavail > 0
    except OSError:
        return True


def _is_unreachable(error: DBAPIError) -> bool:
    origin = error.orig
    if isinstance(origin, sqlite3.Error):
        return _sqlite_code(origin) in _SQLITE_UNREACHABLE
    # psycopg's OperationalError is what is not the statement's fault: connections, resources, shutdown, serialisation.
    operational = isinstance(error, OperationalError | InterfaceError) or error.connection_invalidated
    return operational or getattr(origin, "sqlstate", None) == _READ_ONLY


def _sqlite_code(error: sqlite3.Error) -> int:
    # The low byte is the primary result code, the rest refines it (sqlite.org/rescode.html).
    return getattr(error, "sqlite_errorcode", sqlite3.SQLITE_ERROR) & 0xFF


def _first_line(error: DBAPIError) -> str:
    return str(error.orig).strip().splitlines()[0][:200] if str(error.orig).strip() else type(error.orig).__name__
