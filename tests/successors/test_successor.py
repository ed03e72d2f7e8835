"""A holder is gone for good: another takes its place in a session that goes on with the same model, optimiser state and step."""

from __future__ import annotations

from tests.successors.successor_world import (
    FIRST,
    ROUNDS,
    NewWorld,
    give_records_on,
)
from tests.world.world_material import STEPS


async def test_the_model_is_that_of_a_session_that_nobody_left(new_world: NewWorld) -> None:
    """Bit for bit: the newcomer's records are those that the one who left would have brought. So the optimiser's moments, the step that
    bias correction, dropout and the decaying rate count from, and everybody's place in its records were all gone on with."""
    async with new_world("undisturbed") as world:
        undisturbed = await world.completed(await world.begun())
    async with new_world("left") as world:
        give_records_on(world.folder)
        before = await world.ended()
        after = await world.succeed(before)
        view = await world.completed(after)
        first = (await world.owner.session(before))["step"]
    assert view["model"]["digest"] == undisturbed["model"]["digest"]
    assert view["model"]["sha256"] == undisturbed["model"]["sha256"]
    assert (first, view["step"]) == (STEPS * len(FIRST), STEPS * len(FIRST) * ROUNDS)
    assert view["step"] == view["steps_total"] == undisturbed["step"]
    assert view["predecessor"] == before
