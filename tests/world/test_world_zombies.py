"""A leader that stood still and believes that it leads: what it still gets to a holder or to the GPU costs the session nothing but time."""

from __future__ import annotations

import base64
import json

import httpx2
import pytest

from data_holder.visits import Visits
from gpu_agent.unit import GpuUnit
from shared.errors import GputError
from shared.wire.visit import VisitOffer
from tests.world.world_recording import Recording
from tests.world.world_standby import FIRST, SECOND, NewPair, PairWorld
from tests.world.world_wire import Call, Deliver

HOLDER = "holder-city"


class LateOffer:
    """Freezes the first orchestrator with an offer for a holder on the wire, which arrives after the second has taken over.

    `turned`: once that holder has turned to the second. Otherwise with the first word that it hears from there.
    """

    def __init__(self, world: PairWorld, *, turned: bool) -> None:
        self._world, self._wanted = world, turned
        self.caught: bytes | None = None
        self.arrived = False
        world.wire.hooks.insert(0, self._hook)

    async def _hook(self, call: Call, deliver: Deliver) -> httpx2.Response:
        if call.client == HOLDER and self.caught is not None and self._world.ice.frozen_at is not None:
            raise httpx2.ConnectError(
                "nobody is reached yet"
            )  # so that the first word of the second comes after the melting
        asks = call.client == HOLDER and call.path == "/v1/inbox"
        if asks and call.server == FIRST and self.caught is not None:
            raise httpx2.ReadError("nor does it hear it by asking again, before the ice holds")
        answer = await deliver(call)
        if not asks:
            return answer
        if call.server == FIRST and self.caught is None and _offers(answer):
            self.caught = answer.content
            self._world.ice.freeze()
            raise httpx2.ReadError("the answer is late")
        if call.server == SECOND and self.caught is not None and not self.arrived and self._turned():
            self.arrived = True
            return httpx2.Response(200, headers={"content-type": "application/json"}, content=self.caught)
        return answer

    def _turned(self) -> bool:
        """The holder opens a channel to the second: what it hears from now on, it handles when that stands."""
        asked = self._world.wire.calls(HOLDER, SECOND, "/channels")
        return not self._wanted or any(200 <= exchange.status < 300 for exchange in asked)


def _offers(answer: httpx2.Response) -> bool:
    return answer.status_code == 200 and any(item["kind"] == "offer" for item in json.loads(answer.content)["items"])


@pytest.mark.slow
@pytest.mark.parametrize("turned", [True, False])
async def test_a_late_offer_comes_to_nothing(
    turned: bool, new_pair: NewPair, recorded: Recording, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A holder that turned to the second refuses it: its one-time key went with the channel to the first, so nothing is opened and nothing
    sealed. One that did not cannot know better; the second recalls the visit and repeats it."""
    refused: list[tuple[VisitOffer, int, str]] = []
    serve = Visits.offer

    async def told(self: Visits, session: str, offer: VisitOffer) -> None:
        try:
            await serve(self, session, offer)
        except GputError as error:
            refused.append((offer, error.status, error.code))
            raise

    monkeypatch.setattr(Visits, "offer", told)
    async with new_pair() as world:
        late = LateOffer(world, turned=turned)
        session = await world.submit()
        await world.freezes()
        world.expire()
        await world.leads(SECOND)
        world.ice.melt()
        await world.ice.arrived()
        view = await world.patiently(session, lambda view: view["phase"] in ("COMPLETED", "FAILED", "CANCELLED"))
        assert view["phase"] == "COMPLETED", view["failure"]
        assert view["model"]["digest"] == recorded.view["model"]["digest"]
        assert late.arrived
        assert late.caught is not None
        [item] = [item for item in json.loads(late.caught)["items"] if item["kind"] == "offer"]
        zombies = VisitOffer.model_validate(item["offer"])
        said = [(status, code) for offer, status, code in refused if offer == zombies]
        assert said == ([(409, "one-time-key-unknown")] if turned else [])
        visit = json.loads(base64.b64decode(zombies.document))["grant"]["visit"]
        [outcome] = [shown["outcome"] for shown in await world.visits(session) if shown["id"] == visit]
        assert outcome == "recalled"
        world.taken(2)


@pytest.mark.slow
async def test_a_late_key_exchange_wipes_the_gpu_once(new_pair: NewPair, recorded: Recording, unit: GpuUnit) -> None:
    """Stopped between its commit and its key exchange, it goes on with that before it looks at clock or database: nobody inherits a
    full GPU, so the GPU wipes itself; the second fills it again from the sealed checkpoint."""
    async with new_pair() as world:
        world.ice.stop_at(1, "/spdm")
        session = await world.submit()
        await world.freezes()
        world.expire()
        await world.leads(SECOND)
        await world.patiently(session, lambda view: view["visits_closed"] >= 2)
        await world.owner.act(
            session, "pause"
        )  # with a sealed checkpoint; the GPU is at home, and nobody speaks with it
        await world.patiently(session, lambda view: view["phase"] == "PAUSED")
        filled = unit.device.boot_counter
        world.ice.let_pass("/spdm")
        await world.reaches(FIRST, "/commands")  # its handshake is done
        assert unit.device.boot_counter == filled + 1
        world.ice.melt()
        await world.ice.arrived()
        await world.says(FIRST, "stands by")
        await world.owner.act(session, "resume")
        view = await world.patiently(session, lambda view: view["phase"] in ("COMPLETED", "FAILED", "CANCELLED"))
        assert view["phase"] == "COMPLETED", view["failure"]
        assert view["model"]["digest"] == recorded.view["model"]["digest"]
        facts = [event.data.get("fact") async for event in world.owner.events(session)]
        assert facts.count("restored") == 1
        assert unit.device.boot_counter == filled + 3  # the late one, the second's before it restored, and the end
        world.taken(2)
