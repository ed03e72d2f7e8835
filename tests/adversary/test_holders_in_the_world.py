"""A hostile holder in an honest one's place, in every travel mode: what it gets is what is stated, and the session goes on as stated."""

from __future__ import annotations

from typing import Any

import pytest

from gpu_agent.unit import GpuUnit
from shared.canonical import sha256
from shared.claims.manifest import Validation
from shared.names import TravelMode
from tests.adversary.conftest import PAIR, SEED
from tests.adversary.holder import BEHAVIOURS, NAME, HostileHolder, canaries_read
from tests.adversary.platform import HostilePlatform
from tests.adversary.rows import attack
from tests.world.world import NewWorld
from tests.world.world_material import RECORD_BYTES, Material
from tests.world.world_recorder import recording

QUICK = {("plant_code", TravelMode.PAPER), ("write_late", TravelMode.DIRECT), ("impersonate", TravelMode.SCOPED)}
"""The others are proven at the device as well, at a tenth of the cost (`test_holders_at_the_device`)."""


def params() -> list[Any]:
    found = []
    for name, behaviour in BEHAVIOURS.items():
        for mode, expected in behaviour.expected.items():
            stated: dict[str, Any] = {mode.value: expected.result}
            marks = [attack(behaviour.rows, **stated)] + ([] if (name, mode) in QUICK else [pytest.mark.slow])
            found.append(pytest.param(name, mode, marks=marks, id=f"{name}-{mode.value}"))
    return found


@pytest.mark.parametrize(("name", "mode"), params())
async def test_a_hostile_holder_gets_what_is_stated(
    name: str, mode: TravelMode, new_world: NewWorld, undisturbed: str, unit: GpuUnit, material: Material,
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    behaviour = BEHAVIOURS[name]
    expected = behaviour.expected[mode]
    changes = dict(behaviour.manifest)
    if name == "poison":
        count = len(material.validation) // RECORD_BYTES
        changes["validation"] = Validation(
            dataset=sha256(material.validation).hex(), records=count, every_visits=1, max_loss_increase=0.1
        )
    with recording() as recorder:
        async with new_world(holders=PAIR) as world:
            with HostilePlatform(world, mode, recorder, unit, seed=SEED) as platform:
                holder = HostileHolder(platform, name, monkeypatch)
                late = holder.turn()
                session = await world.submit(**({"travel_mode": mode} | changes))
                view = await world.completed(session)
                visits = await world.visits(session)
    assert holder.said, "it never did its deed"
    assert {code for _, code in holder.said} == expected.told
    index = next(v["index"] for v in visits if v["holder"] == NAME and v["round"] == behaviour.visit)
    mine = [visit for visit in visits if visit["index"] == index]
    # On a slow machine a holder asks for its channel twice, and a lease short enough to be waited for ends honest attempts.
    mine = [visit for visit in mine if "opened a new channel" not in (visit["reason"] or "")]
    mine = [mine[0], *(visit for visit in mine[1:] if visit["reason"] != "the lease expired")]
    assert tuple(visit["outcome"] for visit in mine) == expected.outcomes, [visit["reason"] for visit in mine]
    assert expected.reason in (mine[0]["reason"] or "")
    assert {v["outcome"] for v in visits if v["holder"] != NAME} <= {"closed", "recalled"}
    assert canaries_read(holder, material.canaries) == ([NAME] if holder.read else []), (
        "its own is there to be found, no other"
    )
    assert late.taken_late == []
    if behaviour.same:
        assert view["model"]["digest"] == undisturbed
