"""An earlier session of the same parties, recorded whole and played back into a later one. (Replays within one: tests/laws.)"""

from __future__ import annotations

import httpx2

from tests.adversary.rows import attack
from tests.world.world import NewWorld
from tests.world.world_recording import Recording
from tests.world.world_wire import Call, Deliver


@attack("V03", scoped="stopped: nothing of an earlier session is accepted")
async def test_everything_recorded_and_played_back_changes_nothing(new_world: NewWorld, recorded: Recording) -> None:
    """Replay of a whole earlier session's copies, reports and commands into a later one of the same parties."""
    kinds = ("/copy", "/report", "/commands", "/channels")
    old = [e.call for e in recorded.wire.transcript if e.call.path.endswith(kinds) and e.call.method == "POST"][:60]
    accepted: list[str] = []
    async with new_world() as world:

        async def replay(call: Call, deliver: Deliver) -> httpx2.Response:
            answer = await deliver(call)
            if old and call.path.endswith(kinds):
                again = await world[old[0].server].handle(old[0].at_once())
                if again.status_code < 300:
                    accepted.append(old[0].path)
                old.pop(0)
            return answer

        world.wire.hooks.append(replay)
        session = await world.submit()
        view = await world.completed(session)
    assert accepted == []
    assert view["model"]["digest"] == recorded.view["model"]["digest"]
