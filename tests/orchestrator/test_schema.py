"""The orchestrator's revisions lead to the tables that its code names, forwards and back."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import sqlalchemy as sa
from alembic.autogenerate import compare_metadata
from alembic.migration import MigrationContext

from gput.local.installation import to_toml
from orchestrator.tables import ATTESTATIONS, METADATA
from shared.service.engine import create_engine, parse_url
from shared.service.migrations import check_schema, downgrade, upgrade


def test_up_down_up(database_url: str) -> None:
    upgrade(database_url, "orchestrator")
    downgrade(database_url, "orchestrator")
    upgrade(database_url, "orchestrator")
    # The services' own engine ends a transaction in which nothing is said for 3 s, and comparing takes that on a busy machine.
    engine = sa.create_engine(parse_url(database_url))
    try:
        with engine.begin() as connection:
            found = compare_metadata(MigrationContext.configure(connection), METADATA)
            assert not [step for step in found if any(table in str(step) for table in METADATA.tables)]
            row = {"session": "s", "subject": "gpu", "life": 1, "signing_key": "k", "token": "t"}
            for _ in range(2):
                connection.execute(sa.insert(ATTESTATIONS).values(row))
            assert [found.number for found in connection.execute(sa.select(ATTESTATIONS.c.number))] == [1, 2]
    finally:
        engine.dispose()


def test_the_operator_goes_back_by_command(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path / 'data' / 'state.db'}"
    (tmp_path / "data").mkdir(mode=0o700)
    settings = {"data_dir": tmp_path / "data", "owner_keys": tmp_path, "evidence": "emulated:unused", "agent_url": "http://a",
                "platform_url": "http://p"}  # fmt: skip
    (tmp_path / "o.toml").write_text(to_toml(settings))
    upgrade(url, "orchestrator")
    command = [sys.executable, "-m", "orchestrator", "--config", str(tmp_path / "o.toml"), "--schema"]
    assert subprocess.run([*command, "0002"], check=False).returncode == 0
    engine = create_engine(parse_url(url), "read")
    assert "leases" not in sa.inspect(engine).get_table_names()
    engine.dispose()
    unknown = subprocess.run([*command, "9999"], check=False, capture_output=True, text=True)
    assert (
        unknown.returncode,
        "Name one of: base, 0001, 0002, 0003, 0004, 0005, 0006, 0007, 0008, 0009." in unknown.stderr,
    ) == (
        2,
        True,
    )
    upgrade(url, "orchestrator")
    check_schema(url, "orchestrator")
