"""Loading ahead in travel mode `direct`: the next upload overlaps training, and whatever becomes of a visit, the end is the same."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import Any

import httpx2
import numpy as np
import pytest

from data_holder.catalogue import Catalogue
from data_holder.datasets import InspectionReport
from shared.names import TravelMode
from shared.wire.gpu import Train
from tests.world.test_world_crashes import COMMANDS, ORCH, A
from tests.world.world import NewWorld, World
from tests.world.world_faults import Point, Trap, crash
from tests.world.world_material import RECORDS, rows
from tests.world.world_recorder import Recorder, recording
from tests.world.world_recording import Recording
from tests.world.world_wire import Call, Deliver

WAIT_S = 10.0


class Overlap:
    """Holds the answer to each training batch back until the next holder has reported; counts how often that happened."""

    def __init__(self, world: World, recorder: Recorder, expected: int) -> None:
        self._world, self._recorder, self._expected = world, recorder, expected
        self.trained = self.overlapped = 0
        world.wire.hooks.append(self._hook)

    async def _hook(self, call: Call, deliver: Deliver) -> httpx2.Response:
        training = call.path.endswith(COMMANDS) and any(isinstance(c, Train) for c in self._recorder.latest_batch)
        answer = await deliver(call)
        if training:
            self.trained += 1
            if self.overlapped < self._expected:
                await self._next_report()
        return answer

    async def _next_report(self) -> None:
        for _ in range(int(WAIT_S / 0.005)):
            reports = [e for e in self._world.wire.transcript if e.call.path.endswith("/report") and e.status == 202]
            if len(reports) > self.trained:
                self.overlapped += 1
                return
            await asyncio.sleep(0.005)


async def test_the_next_holder_loads_while_the_gpu_trains(new_world: NewWorld, recorded: Recording) -> None:
    """Every visit but the first is loaded, and reported, before the one under way is committed."""
    with recording() as recorder:
        async with new_world() as world:
            overlap = Overlap(world, recorder, 5)
            session = await world.submit(travel_mode=TravelMode.DIRECT)
            view = await world.completed(session)
            assert (overlap.trained, overlap.overlapped) == (6, 5)
            visits = await world.visits(session)
            assert [v["outcome"] for v in visits] == ["closed"] * 6
            assert [v["index"] for v in visits] == list(range(1, 7))
            assert view["model"]["digest"] == recorded.view["model"]["digest"]
    assert recorder.reused == []


async def test_what_was_loaded_behind_a_rejected_visit_is_loaded_anew(
    new_world: NewWorld, recorded: Recording, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The next visit was planned on a model that does not come: recalled without blame, and repeated."""
    inspect = Catalogue.inspect

    async def blind(self: Catalogue, name: str, program: Any) -> InspectionReport:
        return replace(await inspect(self, name, program), fits=True)

    monkeypatch.setattr(Catalogue, "inspect", blind)
    async with new_world() as world:
        features, label = rows(RECORDS, 0)
        label[10] = 99
        np.savez(world.folder / "holder-city" / "ehr.npz", features=features, label=label)
        session = await world.submit(travel_mode=TravelMode.DIRECT)
        view = await world.completed(session)
        story = [(v["index"], v["holder"], v["attempt"], v["outcome"]) for v in await world.visits(session)]
        assert story[:3] == [(1, "city", 1, "rejected"), (2, "harbour", 1, "recalled"), (2, "harbour", 1, "closed")]
        assert {outcome for *_, outcome in story[3:]} == {"closed"}
        assert view["step"] == 5 * 3


@pytest.mark.parametrize(
    "word", ["kill", *(pytest.param(other, marks=pytest.mark.slow) for other in ("pause", "restart"))]
)
async def test_a_visit_loaded_ahead_outlives_no_standstill(word: str, new_world: NewWorld, recorded: Recording) -> None:
    with recording() as recorder:
        async with new_world() as world:

            async def act() -> None:
                if word == "pause":
                    await world.owner.act(session, "pause")
                elif word == "restart":
                    await world[ORCH].restart()
                else:
                    await crash(world, ORCH)()

            trap = Trap(world, Point("holder-harbour", ORCH, "/report", "after"), act, recorder)
            session = await world.submit(travel_mode=TravelMode.DIRECT)
            await trap.done()
            if word == "pause":
                await world.until(session, lambda view: view["phase"] == "PAUSED")
                await world.owner.act(session, "resume")
            view = await world.completed(session)
            assert view["model"]["digest"] == recorded.view["model"]["digest"]
    assert recorder.reused == []


@pytest.mark.slow
async def test_a_holder_that_vetoes_while_it_is_ahead_stops_nobody_else(new_world: NewWorld) -> None:
    """Its first record waits on the wire until the veto is said, so the report of that visit never goes out."""
    async with new_world() as world:
        vetoed = False

        async def veto(call: Call, deliver: Deliver) -> httpx2.Response:
            nonlocal vetoed
            if call.link == ("holder-harbour", A) and call.path.endswith("/staging") and not vetoed:
                vetoed = True
                await world.operator("harbour").decide(session, "veto")
            return await deliver(call)

        world.wire.hooks.append(veto)
        session = await world.submit(travel_mode=TravelMode.DIRECT, quorum=2)
        view = await world.completed(session)
        closed = [v["holder"] for v in await world.visits(session) if v["outcome"] == "closed"]
        assert vetoed
        assert "harbour" not in closed, world.wire.story()
        assert closed.count("city") == closed.count("north") == 2
        assert view["step"] == 4 * 3
