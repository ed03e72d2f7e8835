"""Two orchestrators over one database: one leads; when it dies, stands still or loses the database, sessions go on to the same end."""

from __future__ import annotations

from typing import Any

from tests.world.world_faults import Point, Trap
from tests.world.world_recording import Recording
from tests.world.world_standby import FIRST, SECOND, NewPair, PairWorld

COMMANDS = "/ports/orchestrator/commands"


async def _same_end(world: PairWorld, session: str, recorded: Recording) -> Any:
    view = await world.patiently(session, lambda view: view["phase"] in ("COMPLETED", "FAILED", "CANCELLED"))
    assert view["phase"] == "COMPLETED", view["failure"]
    assert view["model"]["digest"] == recorded.view["model"]["digest"]
    return view


async def test_a_standby_says_so_and_touches_nothing(new_pair: NewPair) -> None:
    async with new_pair() as world:
        assert (await world.ask(FIRST)).status_code == 200
        assert (await world.ask(SECOND, "/livez")).status_code == 200
        ready = await world.ask(SECOND)
        assert ready.status_code == 503
        assert "stands by" in ready.json()["checks"]["leading"]
        for path in ("/v1/sessions", "/v1/whoami", "/v1/openapi.json", "/v1/no-such-thing"):
            answer = await world.ask(SECOND, path)
            assert (answer.status_code, answer.json()["code"]) == (503, "not-leader")
            assert answer.headers["content-type"] == "application/problem+json"
            assert int(answer.headers["retry-after"]) >= 1
        session = await world.submit()
        await world.completed(session)
        acts = [e.call.path for server in ("agent", "platform") for e in world.wire.calls(SECOND, server)]
        assert acts == []


async def test_a_leader_dies_in_mid_session(new_pair: NewPair, recorded: Recording) -> None:
    async with new_pair() as world:
        trap = Trap(world, Point(FIRST, "agent", COMMANDS, "after", 30), world[FIRST].kill)
        session = await world.submit()
        await trap.done()
        world.expire()
        await world.leads(SECOND)
        await _same_end(world, session, recorded)
        world.taken(2)
        await world[FIRST].start()  # the dead one comes back, and finds that another leads
        assert "stands by" in (await world.ask(FIRST)).json()["checks"]["leading"]


async def test_a_clean_stop_hands_over_and_back(new_pair: NewPair, recorded: Recording) -> None:
    async with new_pair() as world:
        session = await world.submit()
        await world.until(session, lambda view: view["visits_closed"] >= 2)
        await world[FIRST].stop()
        await world.leads(SECOND)
        await world[FIRST].start()
        await world.patiently(session, lambda view: view["visits_closed"] >= 4)
        await world[SECOND].stop()
        await world.leads(FIRST)
        await _same_end(world, session, recorded)
        world.taken(3)


async def test_a_zombie_is_refused_by_the_gpu(new_pair: NewPair, recorded: Recording) -> None:
    """It stood still with a command for the GPU in its hand, and believes that it leads until the database says otherwise."""
    async with new_pair() as world:
        world.ice.stop_at(30, "/commands")
        session = await world.submit()
        await world.freezes()
        world.expire()
        await world.leads(SECOND)
        await world.seen(SECOND, "agent", "/commands")  # its life stands
        held = list(world.ice.held)
        before = len(world.wire.transcript)
        world.ice.melt()
        await world.ice.arrived()
        await _same_end(world, session, recorded)
        late = [e for e in world.wire.transcript[before:] if e.call in held]
        commands = [e for e in late if e.call.server == "agent" and e.call.path.endswith("/commands")]
        assert commands, [call.path for call in held]
        refused = [(e.status, e.answer[:200]) for e in commands]
        assert all(status >= 400 for status, _ in refused), refused
        await world.says(FIRST, "stands by")
        said = [e for e in world.wire.transcript[before:] if e.call.client == FIRST and e.call.method != "GET"]
        assert {(e.call.server, e.call.path) for e in said} <= {(c.server, c.path) for c in held}, "no life, no switch"
        world.taken(2)


async def test_the_database_is_away_for_longer_than_a_lease(new_pair: NewPair, recorded: Recording) -> None:
    """Nobody hears of anybody: the leader stops by its own timer, whoever is there first when the database is back goes on."""
    async with new_pair() as world:
        session = await world.submit()
        await world.until(session, lambda view: view["visits_closed"] >= 2)
        await world[SECOND].stop()
        with world.database_away():
            world.ice.skip(31.0)  # seconds of its own timer: more than the lease
            await world.says(FIRST, "this orchestrator does not lead")
            acts = len(world.wire.transcript)
            refused = await world.ask(FIRST, "/v1/sessions")
            assert (refused.status_code, refused.json()["code"]) == (503, "not-leader")
            assert [e for e in world.wire.transcript[acts:] if e.call.client == FIRST] == []
        world.expire()
        await world.leads(FIRST)
        await _same_end(world, session, recorded)
        world.taken(2)
