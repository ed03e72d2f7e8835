"""A whole session in one process."""

from __future__ import annotations

from world import World


async def test_smoke(world: World) -> None:
    session = await world.submit()
    view = await world.completed(session)
    print(view)
