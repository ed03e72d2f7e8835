"""Schema upgrades of a service's database by alembic. Knows no table.

Each package keeps `migrations/versions/*.py` and a version table of its own (`<package>_schema`); the shared tables are a set of the
same kind (`shared_schema`). An upgrade is one transaction: it happens whole or not at all.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from alembic import command
from alembic.config import Config
from alembic.runtime.migration import MigrationContext
from alembic.script import ScriptDirectory
from alembic.util.exc import CommandError
from sqlalchemy import Connection
from sqlalchemy.exc import DBAPIError

from shared.errors import ConfigurationError, Unavailable
from shared.service.engine import create_engine, parse_url, place, translate

_ENVIRONMENT = Path(__file__).parent / "alembic_env"


@dataclass(frozen=True)
class _Schema:
    """One set of revisions: its folder and the table that says where a database stands."""

    versions: Path
    version_table: str

    def config(self, connection: Connection) -> Config:
        config = Config(attributes={"connection": connection, "version_table": self.version_table})
        config.set_main_option("script_location", _escaped(_ENVIRONMENT))
        config.set_main_option("version_locations", _escaped(self.versions))
        config.set_main_option("path_separator", "newline")
        return config

    def current(self, connection: Connection) -> set[str]:
        context = MigrationContext.configure(connection, opts={"version_table": self.version_table})
        return set(context.get_current_heads())


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


def upgrade(url: str, package: str) -> None:
    """Brings the shared tables and those of `package` to the newest schema this code knows.

    Raises:
        ConfigurationError: code `newer-schema`: a newer version of the program has already upgraded the database.
        Unavailable: the database is unreachable or its disk full.
    """
    for schema in (_SHARED, _schema(package)):
        _run(url, schema, lambda config: command.upgrade(config, "head"))


def downgrade(url: str, package: str, revision: str = "base") -> None:
    """Takes the tables of `package` back to `revision`; "base" removes them, and the shared ones too.

    Raises: as `upgrade`.
    """
    _run(url, _schema(package), lambda config: command.downgrade(config, revision))
    if revision == "base":
        _run(url, _SHARED, lambda config: command.downgrade(config, "base"))


def check_schema(url: str, package: str) -> None:
    """Raises: Unavailable (code `schema-outdated`) unless both schemas stand at their newest revision."""
    for schema in (_SHARED, _schema(package)):
        with _connection(url) as connection:
            heads = set(ScriptDirectory.from_config(schema.config(connection)).get_heads())
            if schema.current(connection) != heads:
                raise Unavailable(
                    f"{place(parse_url(url))} is not at the newest schema ({schema.version_table})",
                    code="schema-outdated",
                    remedy="Start the service once with rights to change tables; it upgrades its database by itself.",
                )


def _run(url: str, schema: _Schema, act: Callable[[Config], None]) -> None:
    with _connection(url) as connection:
        config = schema.config(connection)
        known = {script.revision for script in ScriptDirectory.from_config(config).walk_revisions()}
        newer = schema.current(connection) - known
        if newer:
            raise ConfigurationError(
                f"{place(parse_url(url))} has the schema of a newer version of this program ({', '.join(sorted(newer))})",
                code="newer-schema",
                remedy="Run that newer version, or name another database by the setting database_url.",
            )
        act(config)
        connection.commit()


@contextmanager
def _connection(url: str) -> Iterator[Connection]:
    parsed = parse_url(url)
    engine = create_engine(parsed, "write")
    try:
        with engine.connect() as connection:
            yield connection
    except DBAPIError as error:
        raise translate(error, parsed) or error from error
    except CommandError as error:
        raise ConfigurationError(f"the schema of {place(parsed)} cannot be changed: {error}") from error
    finally:
        engine.dispose()
