"""Schema upgrades on both databases: up, down, up again; a newer database is refused; a failed upgrade leaves nothing."""

from __future__ import annotations

import sys
import textwrap
from pathlib import Path

import pytest
import sqlalchemy as sa
from alembic.autogenerate import compare_metadata
from alembic.migration import MigrationContext

from shared.errors import ConfigurationError, Unavailable
from shared.service.engine import create_engine, parse_url
from shared.service.migrations import check_schema, downgrade, upgrade
from shared.service.tables import METADATA

SHARED = {"journal", "replay_nonces", "idempotent_replies"}


@pytest.fixture
def package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """A service package with one revision of its own."""
    versions = tmp_path / "sample_service" / "migrations" / "versions"
    versions.mkdir(parents=True)
    (tmp_path / "sample_service" / "__init__.py").write_text("")
    (versions / "0001_things.py").write_text(
        textwrap.dedent(
            """
            import sqlalchemy as sa
            from alembic import op
            revision, down_revision = "0001", None
            def upgrade():
                op.create_table("things", sa.Column("id", sa.Integer, primary_key=True))
            def downgrade():
                op.drop_table("things")
            """
        )
    )
    monkeypatch.syspath_prepend(str(tmp_path))
    sys.modules.pop("sample_service", None)
    return "sample_service"


def tables(url: str) -> set[str]:
    engine = create_engine(parse_url(url), "read")
    try:
        return set(sa.inspect(engine).get_table_names())
    finally:
        engine.dispose()


def test_up_down_up(database_url: str, package: str) -> None:
    with pytest.raises(Unavailable) as caught:
        check_schema(database_url, package)
    assert caught.value.code == "schema-outdated"
    upgrade(database_url, package)
    assert SHARED | {"things"} <= tables(database_url)
    check_schema(database_url, package)
    upgrade(database_url, package)
    downgrade(database_url, package)
    assert not (SHARED | {"things"}) & tables(database_url)
    upgrade(database_url, package)
    assert SHARED | {"things"} <= tables(database_url)


def test_shared_revisions_make_the_declared_tables(database_url: str, package: str) -> None:
    upgrade(database_url, package)
    # The services' own engine ends a transaction in which nothing is said for 3 s.
    engine = sa.create_engine(parse_url(database_url))
    with engine.connect() as connection:
        context = MigrationContext.configure(
            connection,
            opts={"compare_type": True, "include_name": lambda name, kind, _: kind != "table" or name in SHARED},
        )
        assert compare_metadata(context, METADATA) == []
    engine.dispose()


def test_newer_schema_is_refused(database_url: str, package: str) -> None:
    upgrade(database_url, package)
    engine = create_engine(parse_url(database_url), "write")
    with engine.begin() as connection:
        connection.exec_driver_sql("UPDATE sample_service_schema SET version_num = '0099'")
    engine.dispose()
    with pytest.raises(ConfigurationError, match="0099") as caught:
        upgrade(database_url, package)
    assert caught.value.code == "newer-schema"
    assert caught.value.remedy


def test_a_failed_upgrade_leaves_nothing(database_url: str, package: str, tmp_path: Path) -> None:
    upgrade(database_url, package)
    (tmp_path / "sample_service/migrations/versions/0002_broken.py").write_text(
        textwrap.dedent(
            """
            import sqlalchemy as sa
            from alembic import op
            revision, down_revision = "0002", "0001"
            def upgrade():
                op.create_table("half", sa.Column("id", sa.Integer, primary_key=True))
                op.execute("SELECT no_such_column FROM things")
            def downgrade(): ...
            """
        )
    )
    with pytest.raises(sa.exc.DBAPIError):
        upgrade(database_url, package)
    assert "half" not in tables(database_url)


def test_package_without_migrations_is_named(sqlite_url: str) -> None:
    with pytest.raises(ConfigurationError, match=r"shared\.wire has no migrations"):
        upgrade(sqlite_url, "shared.wire")


def test_a_revision_may_think_for_longer_than_a_visits_transaction(
    postgres_url: str, package: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("shared.service.engine.STALLED_S", 0.05)
    revision = tmp_path / package / "migrations" / "versions" / "0001_things.py"
    revision.write_text(
        revision.read_text().replace("def upgrade():", "def upgrade():\n    import time; time.sleep(0.5)")
    )
    upgrade(postgres_url, package)
    check_schema(postgres_url, package)
