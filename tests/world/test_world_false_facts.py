"""One answer to what the orchestrator asks in clear about its GPU, not the agent's: it breaks a life, and ends no session."""

from __future__ import annotations

import json
import os
import warnings
from collections.abc import Callable
from typing import Any

import httpx2
import pytest

from gpu_agent.hardware.root_of_trust import RootOfTrust
from gpu_agent.hardware.spdm import SpdmResponder
from gput.local.installation import GPU
from orchestrator.runner import patience
from shared.errors import EmulationWarning
from shared.wire.spdm import UNEXPECTED_REQUEST, error
from tests.gpu.gpu_world import device_folder
from tests.world.world import NewWorld, World
from tests.world.world_wire import Call, Deliver

FACTS, SPDM = f"/v1/gpus/{GPU}", "/spdm"
Lie = Callable[[dict[str, Any]], dict[str, Any]]


def _booted(folder: Any) -> RootOfTrust:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", EmulationWarning)
        return RootOfTrust.load(folder, os.urandom)


def _earlier(world: World) -> Lie:
    """The certificate of another boot of the same device: genuine, and kept by whoever asked then."""
    certificate = _booted(world.folder / "devices" / GPU).statement_certificate.hex()
    return lambda facts: facts | {"statement_certificate": certificate}


def _always(**changes: Any) -> Callable[[World], Lie]:
    return lambda _: lambda facts: facts | changes


LIES: dict[str, Callable[[World], Lie]] = {
    "a boot without an end": _always(boot_counter=float("inf")),
    "a boot that no journal can name": _always(boot_counter=2**53),
    "a certificate that is none": _always(statement_certificate="00"),
    "no certificate": _always(statement_certificate=""),
    "a certificate that was changed": lambda _: (
        lambda facts: facts | {"statement_certificate": facts["statement_certificate"][:-2] + "00"}
    ),
}


class Liar:
    """Changes what the agent says of its GPU, where it `speaks`."""

    def __init__(self, lie: Lie, speaks: Callable[[int], bool]) -> None:
        self._lie, self._speaks = lie, speaks
        self.calls = self.said = 0

    async def __call__(self, call: Call, deliver: Deliver) -> httpx2.Response:
        answer = await deliver(call)
        if call.link == ("orchestrator", "agent") and call.path == FACTS:
            self.calls += 1
            if self._speaks(self.calls):
                self.said += 1
                return httpx2.Response(200, content=json.dumps(self._lie(json.loads(answer.content))).encode())
        return answer


@pytest.mark.parametrize("which", LIES)
async def test_one_lie_at_the_opening_of_a_life(new_world: NewWorld, which: str) -> None:
    async with new_world(holders=("city",)) as world:
        await world.enrol()
        liar = Liar(LIES[which](world), lambda call: call == 2)  # the first is of who submits, and a hint
        world.wire.hooks.append(liar)
        await world.completed(await world.submit(rounds=1))
        assert (liar.said, liar.calls > 2) == (1, True)


@pytest.mark.parametrize("travel_mode", ["scoped", "direct"])
async def test_a_certificate_of_an_earlier_boot_breaks_no_more_than_a_life(
    new_world: NewWorld, travel_mode: str
) -> None:
    """It is the device's own, and nobody knows before it signs something."""
    async with new_world(holders=("city",)) as world:
        await world.enrol()
        liar = Liar(_earlier(world), lambda call: call == 2)
        world.wire.hooks.append(liar)
        await world.completed(await world.submit(rounds=1, travel_mode=travel_mode))
        assert (liar.said, liar.calls > 2) == (1, True)


async def test_one_lie_while_a_holder_has_the_gpu(new_world: NewWorld) -> None:
    async with new_world(holders=("city",)) as world:
        session = await world.submit(rounds=1)
        liar = Liar(LIES["a boot without an end"](world), lambda call: call == 1)

        async def slow(call: Call, deliver: Deliver) -> httpx2.Response:
            if call.client == "holder-city" and call.server == "agent" and not liar.said:
                if liar not in world.wire.hooks:  # not before: an opening asks the same
                    world.wire.hooks.append(liar)
                raise httpx2.ConnectError("a slow line")
            return await deliver(call)

        world.wire.hooks.append(slow)
        await world.completed(session)
        assert liar.said == 1


@pytest.mark.parametrize(
    ("which", "code"),
    [("a certificate that was changed", "bad-signature"), ("no certificate", "no-statement-key")],
)
async def test_a_device_without_a_sound_certificate_ends_it_with_the_reason(
    new_world: NewWorld, which: str, code: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(patience, "MAX_CONFLICTS", 2)
    async with new_world(holders=("city",)) as world:
        await world.enrol()
        liar = Liar(LIES[which](world), lambda _: True)
        world.wire.hooks.append(liar)
        view = await world.finish(await world.submit(rounds=1))
        assert (view["phase"], view["failure"]["code"]) == ("FAILED", code)
        assert liar.said > 2


class AnotherGpu:
    """Answers the SPDM messages of some handshakes, with all that follows in them, as a GPU of another maker."""

    def __init__(self, answers: Callable[[int], bool]) -> None:
        self._answers = answers
        self._responder = SpdmResponder(_booted(device_folder()), entropy=os.urandom, hooks=self, report=[].append)
        self.handshakes = self.stood = 0

    async def __call__(self, call: Call, deliver: Deliver) -> httpx2.Response:
        if call.link != ("orchestrator", "agent") or not call.path.endswith(SPDM):
            return await deliver(call)
        self.handshakes += call.body[:2] == b"\x10\x84"  # GET_VERSION begins one
        if not self._answers(self.handshakes):
            return await deliver(call)
        return httpx2.Response(200, content=self._responder.message(call.body))

    def check_resume(self, *_: object) -> None:
        """It takes whatever proof there is."""

    def session_opened(self, *_: object) -> None:
        self.stood += 1


async def _under_way(world: World, *, restarted: bool) -> str:
    """A session; `restarted`: after a visit of which its orchestrator is another process, which resumes a life."""
    session = await world.submit(rounds=6)
    if restarted:
        await world.until(session, lambda view: view["visits_closed"] >= 1)
        await world["orchestrator"].restart()
    return session


@pytest.mark.parametrize("nth", [1, 2])
async def test_one_handshake_with_somebody_elses_gpu_ends_no_session(new_world: NewWorld, nth: int) -> None:
    """Only evidence tells whose GPU answers, and that comes when the session stands."""
    async with new_world(holders=("city",)) as world:
        await world.enrol()
        other = AnotherGpu(lambda handshake: handshake == nth)
        world.wire.hooks.append(other)
        view = await world.completed(await _under_way(world, restarted=nth > 1))
        assert other.stood == 1, view


async def test_somebody_elses_gpu_that_stays_ends_it_with_the_reason(
    new_world: NewWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(patience, "MAX_CONFLICTS", 2)
    async with new_world(holders=("city",)) as world:
        await world.enrol()
        other = AnotherGpu(lambda _: True)
        world.wire.hooks.append(other)
        session = await world.submit(rounds=1)
        view = await world.finish(session)
        assert (view["phase"], view["failure"]["code"]) == ("FAILED", "gpu-root-unknown")
        assert other.stood == 3
        assert not view["visits_closed"]


class Disturber:
    """Answers the beginning of some handshakes with an SPDM ERROR, as the device does to who asks out of turn."""

    def __init__(self, disturbs: Callable[[int], bool]) -> None:
        self._disturbs, self.handshakes, self.disturbed = disturbs, 0, 0

    async def __call__(self, call: Call, deliver: Deliver) -> httpx2.Response:
        begins = call.link == ("orchestrator", "agent") and call.path.endswith(SPDM) and call.body[:2] == b"\x10\x84"
        self.handshakes += begins
        if not begins or not self._disturbs(self.handshakes):
            return await deliver(call)
        self.disturbed += 1
        return httpx2.Response(200, content=error(UNEXPECTED_REQUEST))


@pytest.mark.parametrize(("resumed", "broken"), [(False, 5), (True, 9)])
async def test_a_stranger_who_breaks_some_handshakes_in_a_row_ends_no_session(
    new_world: NewWorld, resumed: bool, broken: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is on the line for a second or two, and says what no journal explains. A life that is resumed is asked for under two numbers."""
    monkeypatch.setattr(patience, "PATIENCE_S", (0.05,))
    async with new_world(holders=("city",)) as world:
        await world.enrol()
        stranger = Disturber(lambda handshake: 0 <= handshake - 1 - resumed < broken)
        world.wire.hooks.append(stranger)
        view = await world.completed(await _under_way(world, restarted=resumed))
        assert stranger.disturbed == broken, view


@pytest.mark.parametrize(("first", "code"), [(1, "gpu-refused-session"), (2, "unexplained-life")])
async def test_a_gpu_that_opens_no_life_any_more_ends_it_with_the_reason(
    new_world: NewWorld, first: int, code: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(patience, "MAX_CONFLICTS", 2)
    async with new_world(holders=("city",)) as world:
        await world.enrol()
        stranger = Disturber(lambda handshake: handshake >= first)
        world.wire.hooks.append(stranger)
        view = await world.finish(await _under_way(world, restarted=first > 1))
        assert (view["phase"], view["failure"]["code"]) == ("FAILED", code)
