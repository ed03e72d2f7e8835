"""Travel mode `paper` with a holder that uses its key to the whole GPU: found out, undone bit for bit, and the session goes on."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import httpx2
import pytest

import data_holder.visits
from gpu_agent.unit import GpuUnit
from shared.claims.visit import Grant
from shared.crypto.stock_channel import StockChannel
from shared.crypto.visit_key import VisitKey
from shared.names import RegionKind, TravelMode
from shared.wire.codec import decode, encode, encode_all
from shared.wire.stock import StockAnswer, StockFrame, WriteMemory
from tests.adversary.rows import attack
from tests.world.world import NewWorld, World, url
from tests.world.world_material import Material
from tests.world.world_recording import Recording
from tests.world.world_wire import Call, Deliver, Link


class Overwriter:
    """The holder city, with its data published: writes into memory where it should not, at addresses that somebody told it, and reports."""

    def __init__(
        self, world: World, unit: GpuUnit, monkeypatch: pytest.MonkeyPatch, kinds: list[RegionKind], visits: int
    ) -> None:
        self._world, self._unit, self._kinds, self.left = world, unit, kinds, visits
        self._kept: list[tuple[Grant, VisitKey]] = []
        real: Callable[[Any, Any], VisitKey] = data_holder.visits.open_offer

        def keep(offer: Any, key: Any) -> VisitKey:
            visit_key = real(offer, key)
            self._kept.append((offer.document.grant, visit_key))
            return visit_key

        monkeypatch.setattr(data_holder.visits, "open_offer", keep)
        world.wire.hooks.append(self._hook)

    async def _hook(self, call: Call, deliver: Deliver) -> httpx2.Response:
        if call.link == ("holder-city", "orchestrator") and call.path.endswith("/report") and self.left:
            self.left -= 1
            await self._write()
        return await deliver(call)

    async def _write(self) -> None:
        grant, key = next(kept for kept in reversed(self._kept) if kept[0].holder == "city")
        channel = StockChannel(key.key, grant, "holder")
        link = Link(self._world.wire, "attacker", "agent")
        async with httpx2.AsyncClient(transport=link, base_url=url("agent")) as client:
            for kind in self._kinds:
                address = self._unit.device._state.regions.all(kind)[0].address + 64
                n, ct = channel.seal(encode_all([WriteMemory(address=address, data=b"overwritten")]))
                frame = encode(StockFrame(epoch=grant.epoch, n=n, ct=ct))
                answer = await client.post(f"/v1/gpus/gpu-0/ports/{grant.port}/commands", content=frame)
                assert answer.status_code == 200, answer.text
                told = decode(StockFrame, answer.content)
                assert decode(StockAnswer, channel.open(told.n, told.ct)).code is None


FOUND = {
    "model": ([RegionKind.MODEL], ["quarantined", "closed"]),
    "code": ([RegionKind.CODE], ["closed"]),  # uploaded again before anything runs
    "buffer": ([RegionKind.DATASET], ["recalled", "closed"]),
    "both copies": ([RegionKind.MODEL, RegionKind.COMMITTED], ["lost", "closed"]),
    "committed copy": ([RegionKind.COMMITTED], ["lost", "closed"]),
    "held-out records": ([RegionKind.VALIDATION], ["lost", "closed"]),
}


@attack("H04 H05", paper="stopped: read-back, roll-back and sweep")
@pytest.mark.parametrize("what", FOUND)
async def test_what_a_holder_overwrote_is_undone(
    what: str, new_world: NewWorld, unit: GpuUnit, recorded: Recording, monkeypatch: pytest.MonkeyPatch
) -> None:
    """H04, H05, H14: whatever the key was used for, the model at the end is that of an undisturbed session."""
    kinds, outcomes = FOUND[what]
    async with new_world() as world:
        overwriter = Overwriter(world, unit, monkeypatch, kinds, 1)
        session = await world.submit(travel_mode=TravelMode.PAPER)
        view = await world.completed(session, 60)
        assert overwriter.left == 0
        assert [v["outcome"] for v in await world.visits(session) if v["index"] == 1][: len(outcomes)] == outcomes
        assert view["model"]["digest"] == recorded.view["model"]["digest"]


async def test_a_holder_that_never_stops_is_passed_over(
    new_world: NewWorld, unit: GpuUnit, material: Material, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The session goes on without it, where the manifest's quorum allows."""
    async with new_world() as world:
        Overwriter(world, unit, monkeypatch, [RegionKind.MODEL], 99)
        session = await world.submit(travel_mode=TravelMode.PAPER, quorum=2, rounds=1)
        view = await world.completed(session, 60)
        visits = await world.visits(session)
        assert {v["outcome"] for v in visits if v["holder"] == "city"} == {"quarantined"}
        assert {v["outcome"] for v in visits if v["holder"] != "city"} == {"closed"}
        assert view["step"] == 2 * 3
