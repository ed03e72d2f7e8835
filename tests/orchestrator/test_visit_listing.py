"""A page of visits costs the same number of reads whatever it holds, and finds their losses by an index."""

from __future__ import annotations

from typing import Any

import sqlalchemy as sa
from sqlalchemy import Engine, insert

from orchestrator.tables import LOSSES, VISITS
from shared.service.app import service_state
from tests.orchestrator.orchestrator_samples import key
from tests.orchestrator.orchestrator_world import World, prepared, submit

STEPS = 3


async def test_a_page_of_visits(world: World) -> None:
    owner = await prepared(world)
    session = (await submit(owner)).json()["id"]
    store = service_state(world.app).store
    assert store is not None
    visits = [
        {"id": f"v_{n:016}", "session": session, "number": n, "holder": f"h{n % 3}", "phase": "CLOSED", "data": {"number": n}}
        for n in range(1, 41)
    ]  # fmt: skip
    losses = [
        {
            "session": session,
            "visit": row["id"],
            "step": step,
            "holder": row["holder"],
            "loss": row["number"] + step / 4,
        }
        for row in visits
        for step in range(STEPS)
    ]
    await store.write(lambda c: (c.execute(insert(VISITS), visits), c.execute(insert(LOSSES), losses)))
    said: list[tuple[str, Any]] = []

    def executed(_c: object, _cursor: object, statement: str, parameters: Any, _context: object, _many: bool) -> None:
        if "visits" in statement or "losses" in statement:  # the service looks at other things of its own accord
            said.append((statement, parameters))

    counts = []
    sa.event.listen(Engine, "before_cursor_execute", executed)
    try:
        for limit in (2, 40):
            said.clear()
            page = (await owner.get(f"/v1/sessions/{session}/visits", params={"limit": limit})).json()["items"]
            assert [row["losses"] for row in page] == [[n, n + 0.25, n + 0.5] for n in range(1, limit + 1)]
            counts.append(len(said))
            [asked] = [one for one in said if "FROM losses" in one[0]]
    finally:
        sa.event.remove(Engine, "before_cursor_execute", executed)
    assert counts[0] == counts[1], said
    plan = await store.read(lambda c: c.exec_driver_sql(f"EXPLAIN QUERY PLAN {asked[0]}", asked[1]).all())
    assert "USING INDEX" in str(plan) or "USING PRIMARY KEY" in str(plan), plan


async def test_losses_of_a_mixture_are_the_owners_alone(world: World) -> None:
    """They are over several holders' records: of no visit, and shown to no holder, not even whose visit they are kept under."""
    owner = await prepared(world)
    session = (await submit(owner)).json()["id"]
    store = service_state(world.app).store
    assert store is not None
    visit = {"id": f"v_{1:016}", "session": session, "number": 1, "holder": "h0", "phase": "CLOSED", "data": {}}
    loss = {"session": session, "visit": visit["id"], "step": 0, "holder": "", "loss": 1.5}
    await store.write(lambda c: (c.execute(insert(VISITS), [visit]), c.execute(insert(LOSSES), [loss])))
    shown = {}
    for who, client in (("owner", owner), ("h0", world.client(key(1)))):
        losses = (await client.get(f"/v1/sessions/{session}/losses")).json()["items"]
        [page] = (await client.get(f"/v1/sessions/{session}/visits")).json()["items"]
        shown[who] = [one["loss"] for one in losses], page["losses"]
    assert shown == {"owner": ([1.5], None), "h0": ([], None)}
