"""The orchestrator's revisions lead to the tables that its code names, forwards and back."""

from __future__ import annotations

import sqlalchemy as sa
from alembic.autogenerate import compare_metadata
from alembic.migration import MigrationContext

from orchestrator.tables import ATTESTATIONS, METADATA
from shared.service.engine import create_engine, parse_url
from shared.service.migrations import downgrade, upgrade


def test_up_down_up(database_url: str) -> None:
    upgrade(database_url, "orchestrator")
    downgrade(database_url, "orchestrator")
    upgrade(database_url, "orchestrator")
    engine = create_engine(parse_url(database_url), "write")
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
