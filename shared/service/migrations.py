"""Schema upgrades of a service's database by alembic. Knows no table.

Each package keeps `migrations/versions/*.py` and a version table of its own (`<package>_schema`); the shared tables are a set of the
same kind (`shared_schema`). An upgrade is one transaction: it happens whole or not at all. So is a downgrade, which refuses to lose what
the older schema cannot hold and nobody can bring back.
"""

from __future__ import annotations

import importlib
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import sqlalchemy as sa
from alembic import command
from alembic.config import Config
from alembic.runtime.migration import MigrationContext
from alembic.script import ScriptDirectory
from alembic.util.exc import CommandError
from sqlalchemy import Connection
from sqlalchemy.exc import DBAPIError

from shared.errors import ConfigurationError, Unavailable
from shared.service.engine import create_engine, parse_url, place, translate

THINKS_S = 60
"""How long a revision may compute between two statements: on a busy machine, longer than a transaction that bars visits may stand still."""
ONE_AT_A_TIME = 0x67707574_5C4E3A
"""PostgreSQL's advisory lock of whoever changes the schema: an orchestrator and its standby may start together over an empty database."""
_ENVIRONMENT = Path(__file__).parent / "alembic_env"


@dataclass(frozen=True)
class _Schema:
    """One set of revisions: its folder and the table that says where a database stands."""

    versions: Path
    version_table: str

    def config(self, connection: Connection, files: Path | None = None) -> Config:
        attributes = {"connection": connection, "version_table": self.version_table, "files": files}
        config = Config(attributes=attributes)
        config.set_main_option("script_location", _escaped(_ENVIRONMENT))
        config.set_main_option("version_locations", _escaped(self.versions))
        config.set_main_option("path_separator", "newline")
        return config

    def revisions(self, connection: Connection) -> frozenset[str]:
        return _read(self, self.config(connection)).revisions

    def heads(self, connection: Connection) -> frozenset[str]:
        return _read(self, self.config(connection)).heads

    def current(self, connection: Connection) -> set[str]:
        context = MigrationContext.configure(connection, opts={"version_table": self.version_table})
        return set(context.get_current_heads())


@dataclass(frozen=True)
class _Scripts:
    revisions: frozenset[str]
    heads: frozenset[str]


_READ: dict[tuple[str, ...], _Scripts] = {}


def _read(schema: _Schema, config: Config) -> _Scripts:
    """What a folder of revisions names, read once for the same files: every reading executes each of them."""
    files = tuple(sorted(str(path) for path in schema.versions.glob("*.py")))
    if files not in _READ:
        scripts = ScriptDirectory.from_config(config)
        names = frozenset(str(script.revision) for script in scripts.walk_revisions())
        _READ[files] = _Scripts(names, frozenset(scripts.get_heads()))
    return _READ[files]


def _escaped(path: Path) -> str:
    return str(path).replace("%", "%%")  # ConfigParser interpolation


_SHARED = _Schema(_ENVIRONMENT / "versions", "shared_schema")


def _schema(package: str) -> _Schema:
    module = importlib.import_module(package)
    if module.__file__ is None:
        raise ConfigurationError(f"package {package} has no folder", remedy="Install the package as files.")
    versions = Path(module.__file__).parent / "migrations" / "versions"
    if not versions.is_dir():
        raise ConfigurationError(
            f"package {package} has no migrations", remedy="The installation is incomplete; install it again."
        )
    return _Schema(versions, f"{package.replace('.', '_')}_schema")


def upgrade(url: str, package: str, files: Path | None = None) -> None:
    """Brings the shared tables and those of `package` to the newest schema this code knows.

    Args:
        files: folder of the service's files, for revisions that move something between files and tables.

    Raises:
        ConfigurationError: code `newer-schema`: a newer version of the program has already upgraded the database.
        Unavailable: the database is unreachable or its disk full.
    """
    with _connection(url) as connection:
        _alone(connection)
        for schema in (_SHARED, _schema(package)):
            _known(url, connection, schema)
            if schema.current(connection) != schema.heads(connection):
                command.upgrade(schema.config(connection, files), "head")
        connection.commit()


def downgrade(url: str, package: str, revision: str = "base", files: Path | None = None) -> None:
    """Takes the tables of `package` back to `revision`, for an older version of the program; "base" removes them, and the shared ones too.

    Raises:
        ConfigurationError: code `downgrade-loses`: the older schema cannot hold what is there; nothing was changed. Code
            `unknown-schema`: there is no such revision. Else as `upgrade`.
    """
    schema = _schema(package)
    with _connection(url) as connection:
        _alone(connection)
        _known(url, connection, schema)
        if revision not in {"base", *schema.revisions(connection)}:
            raise ConfigurationError(
                f"there is no schema {revision!r} of {package}",
                code="unknown-schema",
                remedy=f"Name one of: base, {', '.join(sorted(schema.revisions(connection)))}.",
            )
        command.downgrade(schema.config(connection, files), revision)
        if revision == "base":
            command.downgrade(_SHARED.config(connection), "base")
        connection.commit()


def files_of(context: MigrationContext) -> Path | None:
    """In a revision: the folder of the service's files, as `upgrade` or `downgrade` was given it."""
    folder: Path | None = context.config.attributes.get("files") if context.config is not None else None
    return folder


def refuse_loss(connection: Connection, table: str, what: str, remedy: str, *, where: str = "1 = 1") -> None:
    """In a revision's downgrade. Raises: ConfigurationError: code `downgrade-loses`: `table` has a row `where` that holds."""
    rows = connection.execute(sa.select(sa.func.count()).select_from(sa.table(table)).where(sa.text(where))).scalar()
    if rows:
        raise ConfigurationError(
            f"going back would lose {what} ({rows} rows in {table}): the older schema has no place for it",
            code="downgrade-loses",
            remedy=remedy,
        )


def check_schema(url: str, package: str) -> None:
    """Raises: Unavailable (code `schema-outdated`) unless both schemas stand at their newest revision."""
    for schema in (_SHARED, _schema(package)):
        with _connection(url) as connection:
            if schema.current(connection) != schema.heads(connection):
                raise Unavailable(
                    f"{place(parse_url(url))} is not at the newest schema ({schema.version_table})",
                    code="schema-outdated",
                    remedy="Start the service once with rights to change tables; it upgrades its database by itself.",
                )


def _alone(connection: Connection) -> None:
    """Waits until nobody else changes the schema, and keeps others waiting until the transaction ends. SQLite has one writer anyway."""
    if connection.dialect.name == "postgresql":
        connection.exec_driver_sql(f"SELECT pg_advisory_xact_lock({ONE_AT_A_TIME})")


def _known(url: str, connection: Connection, schema: _Schema) -> None:
    newer = schema.current(connection) - schema.revisions(connection)
    if newer:
        raise ConfigurationError(
            f"{place(parse_url(url))} has the schema of a newer version of this program ({', '.join(sorted(newer))})",
            code="newer-schema",
            remedy="Run that newer version, or name another database by the setting database_url.",
        )


@contextmanager
def _connection(url: str) -> Iterator[Connection]:
    parsed = parse_url(url)
    engine = create_engine(parsed, "write")
    try:
        with engine.connect() as connection:
            if connection.dialect.name == "postgresql":
                connection.exec_driver_sql(f"SET idle_in_transaction_session_timeout = {THINKS_S * 1000}")
            yield connection
    except DBAPIError as error:
        raise translate(error, parsed) or error from error
    except CommandError as error:
        raise ConfigurationError(
            f"the schema of {place(parsed)} cannot be changed: {error}", code="schema-unchangeable",
            remedy="This release's own revisions are damaged, or what the database says of its schema: install it anew, or restore a "
            "backup of the database.",
        ) from error  # fmt: skip
    finally:
        engine.dispose()
