"""The other side of every check: a thousand honest visits, and nothing is refused, repeated, rolled back or held against anybody."""

from __future__ import annotations

from collections import Counter

import pytest

from shared.names import TravelMode
from tests.world.world import NewWorld
from tests.world.world_material import HOLDERS

ROUNDS = 112  # 336 visits in each of three modes


@pytest.mark.slow
@pytest.mark.parametrize("mode", list(TravelMode))
async def test_honest_visits_raise_no_alarm(mode: TravelMode, new_world: NewWorld) -> None:
    async with new_world() as world:
        session = await world.submit(travel_mode=mode, rounds=ROUNDS, visit_order="shuffled", record_order="shuffled")
        await world.completed(session, 3000)
        visits = await world.visits(session)
        assert Counter(visit["holder"] for visit in visits) == dict.fromkeys(HOLDERS, ROUNDS)
        assert {(visit["attempt"], visit["outcome"]) for visit in visits} == {(1, "closed")}
        alarms = [word for event in await world.events(session) for word in ALARMS if word in event]
        refused = Counter((e.call.client, e.call.path, e.status) for e in world.wire.transcript if e.status >= 400)
    # Until it is enrolled a holder is nobody.
    refused = Counter({key: n for key, n in refused.items() if key[1:] != ("/v1/inbox", 401)})
    assert alarms == []
    assert refused == {}


ALARMS = ("quarantin", "rejected", "rolled", "recall", "lost", "mismatch", "refused")
