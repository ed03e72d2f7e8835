"""How often a session is sealed: by its interval, and by what the last checkpoint cost."""

from __future__ import annotations

import pytest

from tests.world.world import NewWorld
from tests.world.world_material import HOLDERS, ROUNDS


@pytest.mark.parametrize(("share", "made"), [(1e6, len(HOLDERS) * ROUNDS), (1e-9, 0)])
async def test_a_checkpoint_must_be_paid_for_by_training(new_world: NewWorld, share: float, made: int) -> None:
    """Due after every visit by the interval: there is one after each, or, where no training pays for the first, none."""
    tuning = {"orchestrator": {"checkpoint_interval_s": 1e-6, "checkpoint_share": share}}
    async with new_world(settings=tuning) as world:
        session = await world.submit()
        await world.completed(session)
        facts = [event.data async for event in world.owner.events(session) if event.data.get("fact") == "checkpointed"]
        assert len(facts) == made
        assert all(fact["seconds"] > 0 for fact in facts)
