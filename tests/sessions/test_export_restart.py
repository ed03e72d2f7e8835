"""An orchestrator that dies after the last visit: what its last life signs can be verified, though no holder opened a channel with it."""

from __future__ import annotations

from typing import Any

from tests.sessions.session_world import Work
from tests.world.world_faults import Point, Trap, crash
from tests.world.world_material import Material
from tests.world.world_recorder import recording

EXPORT = Point("orchestrator", "agent", "/ports/orchestrator/commands", "after", 1, "Export")


async def test_a_session_whose_orchestrator_dies_during_the_export_is_verified(
    session_world: Any, material: Material
) -> None:
    with recording() as recorder:
        async with session_world(Work(material.archive, material.weights), "sqlite") as world:
            trap = Trap(world, EXPORT, crash(world, "orchestrator"), recorder)
            session = await world.submit()
            await trap.done()
            view = await world.completed(session)  # and its receipts verified
            assert [outcome for outcome, _ in await world.statements(session)] == ["closed"] * view["visits_total"]
