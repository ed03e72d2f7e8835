"""Sealing ahead: whatever becomes of a visit, or of who has the next one's key meanwhile, the end is the same, and no key is used twice."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import httpx2
import numpy as np
import pytest

from data_holder.catalogue import Catalogue
from data_holder.datasets import InspectionReport
from orchestrator.gpu_session.life import GpuLife
from orchestrator.visits import sealing_ahead
from orchestrator.visits.run import Run
from shared.wire.gpu import Train
from tests.world.test_world_crashes import ORCH, A
from tests.world.test_world_order import RARELY, all_ready
from tests.world.world import NewWorld, World
from tests.world.world_faults import Point, Trap, crash
from tests.world.world_material import RECORDS, rows
from tests.world.world_recorder import recording
from tests.world.world_recording import Recording
from tests.world.world_wire import Call, Deliver

NORTH = "holder-north"
pytestmark = pytest.mark.usefixtures(all_ready.__name__)


class BesideTraining:
    """Does something once the third visit, which is north's, has been given its key while the second trains."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, act: Any) -> None:
        self.done = False
        offer_ahead = sealing_ahead.offer_ahead

        async def watched(run: Run) -> None:
            await offer_ahead(run)
            if run.drawn is not None and run.drawn.visit.holder == "north" and not self.done:
                self.done = True
                await act(run)

        monkeypatch.setattr("orchestrator.visits.cycle.offer_ahead", watched)


async def story(world: World, session: str) -> list[tuple[int, str, str]]:
    return [(visit["index"], visit["holder"], visit["outcome"]) for visit in await world.visits(session)]


async def test_what_was_offered_behind_a_rejected_visit_is_offered_anew(
    new_world: NewWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    inspect = Catalogue.inspect

    async def blind(self: Catalogue, name: str, program: Any) -> InspectionReport:
        return replace(await inspect(self, name, program), fits=True)

    monkeypatch.setattr(Catalogue, "inspect", blind)
    with recording() as recorder:
        async with new_world(settings=RARELY) as world:
            features, label = rows(RECORDS, 2)
            label[:] = 99
            np.savez(world.folder / "holder-north" / "ehr.npz", features=features, label=label)
            session = await world.submit()
            await world.completed(session)
            told, visits = await story(world, session), await world.visits(session)
    assert [visit["durations"] for visit in visits if visit["outcome"] == "recalled"] == [{}]  # north's are not its own
    assert told[2:5] == [(3, "north", "rejected"), (4, "city", "recalled"), (4, "city", "closed")]
    assert told[-1] == (6, "north", "rejected")
    assert recorder.reused == []


@pytest.mark.parametrize("word", ["pause", "kill", "holder"])
async def test_a_key_that_was_given_ahead_outlives_no_standstill(
    word: str, new_world: NewWorld, recorded: Recording, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The owner pauses, the orchestrator dies, or the holder who has the key does."""
    with recording() as recorder:
        async with new_world(settings=RARELY) as world:

            async def act(run: Run) -> None:
                if word == "pause":
                    await world.owner.act(session, "pause")
                elif word == "holder":
                    await crash(world, NORTH)()

            beside = BesideTraining(monkeypatch, act)
            if word == "kill":
                trap = Trap(world, Point(ORCH, A, "/commands", "before", 3, "Train"), crash(world, ORCH), recorder)
            session = await world.submit()
            if word == "kill":
                await trap.done()
            if word == "pause":
                await world.until(session, lambda view: view["phase"] == "PAUSED")
                await world.owner.act(session, "resume")
            view = await world.completed(session)
            told = await story(world, session)
            assert beside.done
    assert view["model"]["digest"] == recorded.view["model"]["digest"]
    assert recorder.reused == []
    assert any(outcome == "recalled" for *_, outcome in told), told


async def test_a_holder_that_vetoes_with_a_key_given_ahead_stops_nobody_else(
    new_world: NewWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with new_world(settings=RARELY) as world:

        async def veto(run: Run) -> None:
            await world.operator("north").decide(session, "veto", reason="enough")
            await world.until(session, lambda v: {h["holder"]: h["decision"] for h in v["holders"]}["north"] == "veto")

        beside = BesideTraining(monkeypatch, veto)
        session = await world.submit(quorum=2)
        await world.completed(session)
        told = await story(world, session)
    assert beside.done
    assert (3, "north", "recalled") in told
    assert [holder for _, holder, outcome in told if outcome == "closed"] == ["city", "harbour"] * 2


async def test_a_key_whose_lease_went_while_the_gpu_trained_is_never_installed(
    new_world: NewWorld, recorded: Recording, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And after a training as long as that nobody seals ahead."""
    async with new_world(settings=RARELY) as world:

        async def late(run: Run) -> None:
            later = run.drawn
            assert later is not None
            run.drawn = replace(later, grant=later.grant.model_copy(update={"expires_at": int(run.clock()) + 1}))

        BesideTraining(monkeypatch, late)
        session = await world.submit()
        view = await world.completed(session)
        visits = await world.visits(session)
    assert view["model"]["digest"] == recorded.view["model"]["digest"]
    gone = [visit for visit in visits if visit["outcome"] == "recalled"]
    assert [(visit["holder"], "lease" in visit["reason"]) for visit in gone] == [("north", True)]


async def test_a_visit_recalled_takes_the_one_behind_it_along(new_world: NewWorld, recorded: Recording) -> None:
    """North's records never arrive the first time: its visit is recalled, and with it city's, whose key nobody has yet."""
    async with new_world(settings=RARELY) as world:
        refused = False

        async def refuse(call: Call, deliver: Deliver) -> httpx2.Response:
            nonlocal refused
            if call.link == (NORTH, A) and call.path.endswith("/copy") and not refused:
                refused = True
                return httpx2.Response(409, json={"code": "copy-refused", "title": "Refused", "status": 409})
            return await deliver(call)

        world.wire.hooks.append(refuse)
        session = await world.submit()
        view = await world.completed(session)
        told = await story(world, session)
    assert view["model"]["digest"] == recorded.view["model"]["digest"]
    recalled = sorted(entry[:2] for entry in told if entry[2] == "recalled")
    assert recalled == [(3, "north"), (4, "city")], told


async def test_a_visit_planned_ahead_whose_key_was_not_due_is_planned_anew(
    new_world: NewWorld, recorded: Recording, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its holder had no channel ready when the fence left: no epoch of it is open, and nothing is fenced for it."""
    to_open, missed = sealing_ahead.to_open, list[str]()

    def not_yet(run: Run) -> Any:
        if not missed and run.state.ahead is not None and run.state.ahead.holder == "north":
            missed.append(run.state.ahead.id)
            return None
        return to_open(run)

    monkeypatch.setattr("orchestrator.visits.returning.to_open", not_yet)
    async with new_world(settings=RARELY) as world:
        session = await world.submit()
        view = await world.completed(session)
        visits = await world.visits(session)
    assert view["model"]["digest"] == recorded.view["model"]["digest"]
    assert [visit["id"] for visit in visits if visit["outcome"] == "recalled"] == missed


async def test_nobody_seals_ahead_of_a_training_that_takes_a_quarter_of_the_lease(
    new_world: NewWorld, recorded: Recording, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sealing_ahead, "LEASE_SHARE", 10**9)
    keys = list[int]()
    batch = GpuLife.batch

    async def watched(life: GpuLife, commands: Any, bulk: Any = (), *, behind: Any = None) -> Any:
        if any(isinstance(command, Train) for command in commands):
            keys.append(len(commands))
        return await batch(life, commands, bulk, behind=behind)

    monkeypatch.setattr(GpuLife, "batch", watched)
    given = list[str]()
    offer_ahead = sealing_ahead.offer_ahead

    async def seen(run: Run) -> None:
        given.extend([] if run.drawn is None else [run.drawn.visit.id])
        await offer_ahead(run)

    monkeypatch.setattr("orchestrator.visits.cycle.offer_ahead", seen)
    async with new_world(settings=RARELY) as world:
        view = await world.completed(await world.submit())
    assert len(keys) == 6
    assert given == []
    assert view["model"]["digest"] == recorded.view["model"]["digest"]
