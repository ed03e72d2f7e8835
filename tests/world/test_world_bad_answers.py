"""One answer that nobody can read, from whoever is on the line: it is a try in vain, and ends neither who listens nor a session."""

from __future__ import annotations

from collections.abc import Callable

import httpx2
import pytest

from tests.world.world import NewWorld
from tests.world.world_wire import Call, Deliver

DEEP = b"[" * 60_000
BAD: dict[str, Callable[[], httpx2.Response]] = {
    "a problem too deep to read": lambda: httpx2.Response(503, content=DEEP),
    "a time to try again that is none": lambda: httpx2.Response(
        503, content=b"{}", headers=[(b"retry-after", b"\xb2")]
    ),
}
ANSWERED = {"an answer too deep to read": lambda: httpx2.Response(200, content=DEEP)}


class Once:
    """The `nth` call of a client whose path ends so is answered by somebody else."""

    def __init__(self, client: str, path: str, nth: int, answer: Callable[[], httpx2.Response]) -> None:
        self._client, self._path, self._nth, self._answer = client, path, nth, answer
        self.calls = 0

    async def __call__(self, call: Call, deliver: Deliver) -> httpx2.Response:
        if call.client == self._client and call.path.endswith(self._path):
            self.calls += 1
            if self.calls == self._nth:
                return self._answer()
        return await deliver(call)


@pytest.mark.parametrize("which", [*BAD, *ANSWERED])
async def test_a_holder_goes_on_listening(new_world: NewWorld, which: str) -> None:
    async with new_world(holders=("city",)) as world:
        await world.enrol()
        stranger = Once("holder-city", "/v1/inbox", 2, (BAD | ANSWERED)[which])
        world.wire.hooks.append(stranger)
        await world.completed(await world.submit(rounds=1))
        assert stranger.calls > 2


@pytest.mark.parametrize("which", BAD)
async def test_a_session_goes_on(new_world: NewWorld, which: str) -> None:
    async with new_world(holders=("city",)) as world:
        stranger = Once("orchestrator", "/commands", 12, BAD[which])
        world.wire.hooks.append(stranger)
        await world.completed(await world.submit(rounds=1))
        assert stranger.calls > 12


async def test_a_holder_goes_on_listening_whatever_breaks_in_its_reader(
    new_world: NewWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken() -> httpx2.Response:
        raise RuntimeError("as a bug would")

    async with new_world(holders=("city",)) as world:
        await world.enrol()
        stranger = Once("holder-city", "/v1/inbox", 2, broken)
        world.wire.hooks.append(stranger)
        await world.completed(await world.submit(rounds=1))
        assert stranger.calls > 2
