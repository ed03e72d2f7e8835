"""What anybody on the line may say in clear, in place of the GPU's agent or the platform, breaks a life at most."""

from __future__ import annotations

from collections.abc import Callable

import httpx2
import pytest

from gput.local.installation import GPU
from orchestrator.in_clear import NOT_OURS, in_clear
from orchestrator.runner import patience
from shared.errors import BadRequest, Conflict, GputError, NotFound, Refused, Unavailable
from tests.world.world import NewWorld
from tests.world.world_wire import Call, Deliver

FACTS, SPDM, SWITCH = f"/v1/gpus/{GPU}", "/spdm", "/mux"


class Stranger:
    """Answers some calls of the orchestrator in the place of who was asked."""

    def __init__(self, server: str, path: str, status: int, speaks: Callable[[int], bool]) -> None:
        self._server, self._path, self._status, self._speaks = server, path, status, speaks
        self.calls = self.said = 0

    async def __call__(self, call: Call, deliver: Deliver) -> httpx2.Response:
        if call.client == "orchestrator" and call.server == self._server and call.path.endswith(self._path):
            self.calls += 1
            if self._speaks(self.calls):
                self.said += 1
                return httpx2.Response(
                    self._status, headers={"content-type": "text/html"}, content=b"<html>not here</html>"
                )
        return await deliver(call)


@pytest.mark.parametrize("status", [400, 404, 500])
@pytest.mark.parametrize(
    ("server", "path", "nth"), [("platform", SWITCH, 3), ("agent", FACTS, 2), ("agent", SPDM, 1)]
)  # fmt: skip
async def test_one_answer_of_a_stranger_ends_no_session(
    new_world: NewWorld, server: str, path: str, nth: int, status: int
) -> None:
    async with new_world() as world:
        await world.enrol()
        stranger = Stranger(server, path, status, lambda call: call == nth)
        world.wire.hooks.append(stranger)
        await world.completed(await world.submit(rounds=1))
        assert stranger.said == 1


async def test_a_look_that_a_stranger_answers_is_one_that_was_not_answered(new_world: NewWorld) -> None:
    """The GPU is away, its holder takes its time, and the orchestrator looks where the GPU is."""
    async with new_world() as world:
        session, stranger = await world.submit(rounds=1), Stranger("agent", FACTS, 404, lambda _: True)

        async def slow(call: Call, deliver: Deliver) -> httpx2.Response:
            if call.client.startswith("holder-") and call.server == "agent" and not stranger.said:
                if stranger not in world.wire.hooks:  # not before: an opening asks the same
                    world.wire.hooks.append(stranger)
                raise httpx2.ConnectError("a slow line")
            if stranger.said and stranger in world.wire.hooks:
                world.wire.hooks.remove(stranger)
            return await deliver(call)

        world.wire.hooks.append(slow)
        await world.completed(session)
        assert stranger.said
        visits = await world.visits(session)
        assert [(one["outcome"], one["attempt"]) for one in visits] == [("closed", 1)] * len(world.holders)


async def test_who_goes_on_refusing_ends_it_with_what_it_said(
    new_world: NewWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(patience, "MAX_CONFLICTS", 2)
    async with new_world() as world:
        await world.enrol()
        stranger = Stranger("agent", FACTS, 404, lambda _: True)
        world.wire.hooks.append(stranger)
        view = await world.finish(await world.submit(rounds=1))
        assert (view["phase"], view["failure"]["code"]) == ("FAILED", "not-found")
        assert stranger.said > 2


@pytest.mark.parametrize(
    ("error", "raised", "code"),
    [
        (NotFound("gone"), Conflict, "not-found"),
        (Refused("no"), Conflict, "refused"),
        (GputError("oh"), Conflict, "internal"),
        (Unavailable("away"), Unavailable, "unavailable"),
        (Conflict("not yet", code="no-port"), Conflict, "no-port"),
        (Refused("old", code=NOT_OURS[0]), Refused, NOT_OURS[0]),
        (BadRequest("what"), BadRequest, "bad-request"),
    ],
)
def test_what_tells_already_that_another_life_may_do_better_is_left_as_it_is(
    error: GputError, raised: type[GputError], code: str
) -> None:
    with pytest.raises(GputError) as found, in_clear("Somebody said", counts=(BadRequest,)):
        raise error
    assert (type(found.value), found.value.code) == (raised, code)
