"""What the holder asks itself every second costs nothing of what it has kept, and forgets nothing however much that is."""

from __future__ import annotations

from typing import Any

import pytest
import sqlalchemy as sa

from data_holder.tables import rows
from data_holder.tables.schema import REQUESTS
from shared.service.store import Store

FINISHED = 10_001
USUAL: dict[str, Any] = {
    "manifest_digest": "", "manifest": b"m", "program": b"p", "state": "ended", "decided_by": "policy", "reason": "", "delivered": True,
    "findings": "[]", "received_at": 1.0,
}  # fmt: skip
OPEN: dict[str, dict[str, Any]] = {
    "t_undelivered": {"state": "vetoed", "delivered": False},
    "t_undelivered_after_its_end": {"delivered": False},
    "t_waits_for_its_program": {"state": "waiting", "program": None, "decided_by": None, "delivered": False},
    "t_waits_for_a_decision": {"state": "waiting", "decided_by": None, "delivered": False},
}


@pytest.fixture
async def kept(store: Store) -> Store:
    """A store with very many finished sessions, and those."""
    finished = [USUAL | {"session": f"s_{number}"} for number in range(FINISHED)]
    await store.write(lambda connection: connection.execute(sa.insert(REQUESTS), finished))
    for session, changes in OPEN.items():
        row = USUAL | changes | {"session": session}
        await store.write(lambda connection, row=row: connection.execute(sa.insert(REQUESTS).values(row)))  # type: ignore[misc]
    return store


async def test_what_is_open_is_found_behind_any_number_of_finished_sessions(kept: Store) -> None:
    assert sorted(await kept.read(rows.undelivered)) == ["t_undelivered", "t_undelivered_after_its_end"]
    waiting = [
        await kept.read(lambda c, every=every: rows.unconsidered(c, with_program=every)) for every in (True, False)
    ]  # type: ignore[misc]
    assert [sorted(found) for found in waiting] == [
        ["t_waits_for_a_decision", "t_waits_for_its_program"], ["t_waits_for_its_program"],
    ]  # fmt: skip


async def test_it_is_found_by_an_index_and_no_request_is_read(kept: Store) -> None:
    def plans(connection: sa.Connection) -> list[str]:
        asked: list[str] = []
        sa.event.listen(connection, "before_cursor_execute", lambda *said: asked.append(said[2]))
        rows.undelivered(connection)
        rows.unconsidered(connection, with_program=False)
        assert not [one for one in asked if "manifest" in one or "program," in one]
        return [
            str(connection.exec_driver_sql(f"EXPLAIN QUERY PLAN {one}", ("waiting",) if "?" in one else ()).all())
            for one in list(asked)
            if one.startswith("SELECT")
        ]

    found = await kept.read(plans)
    assert (len(found), ["USING INDEX" in plan for plan in found]) == (2, [True, True]), found
