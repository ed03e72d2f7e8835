"""The same session in every travel mode: the same model, also over crashes, receipts that verify, and no key used twice."""

from __future__ import annotations

from pathlib import Path

import pytest

from gput.receipts import save, verify
from shared.names import TravelMode
from shared.wire.copy import MAX_RECORDS_AT_ONCE, parse_record
from tests.adversary.rows import attack
from tests.world.test_world_crashes import CITY, COMMANDS, ORCH, A
from tests.world.world import NewWorld
from tests.world.world_faults import Point, Trap, crash
from tests.world.world_material import HOLDERS, ROUNDS, Material
from tests.world.world_recorder import recording
from tests.world.world_recording import Recording
from tests.world.world_search import disguises, leaks

OTHERS = [mode for mode in TravelMode if mode is not TravelMode.SCOPED]


@attack(
    "V01",
    direct="stopped: AES-GCM; no window of a record outside",
    paper="stopped: AES-GCM; no window of a record outside",
)
@pytest.mark.parametrize("mode", OTHERS)
async def test_the_same_session_gives_the_same_model(
    mode: TravelMode, new_world: NewWorld, recorded: Recording, material: Material, tmp_path: Path
) -> None:
    with recording() as recorder:
        async with new_world() as world:
            session = await world.submit(travel_mode=mode)
            view = await world.completed(session)
            assert view["model"]["digest"] == recorded.view["model"]["digest"]
            assert {v["outcome"] for v in await world.visits(session)} == {"closed"}
            await save(world.owner, session, tmp_path / "receipts", world.folder / "trust")
            found = verify(tmp_path / "receipts")
            assert found.receipts == len(HOLDERS) * ROUNDS
            assert found.travel_mode is mode
            for canary in material.canaries.values():
                assert leaks([*world.wire.bodies(), *world.files()], disguises(canary)) == []
    assert recorder.reused == []


@pytest.mark.parametrize("mode", TravelMode)
async def test_records_of_several_chains_give_the_same_model(
    mode: TravelMode, new_world: NewWorld, recorded: Recording
) -> None:
    """Sealed by the holders' own code and opened by the GPU's: four tags a record, and no key and IV twice among the chains."""
    with recording() as recorder:
        async with new_world(settings={"orchestrator": {"copy_chains": 4}}) as world:
            session = await world.submit(travel_mode=mode)
            view = await world.completed(session)
            assert view["model"]["digest"] == recorded.view["model"]["digest"]
            doors = ("/staging",) if mode is TravelMode.DIRECT else ("/copy",)
            sent = [e.call.body for h in HOLDERS for door in doors for e in world.wire.calls(f"holder-{h}", A, door)]
            assert {parse_record(body)[0].more_chains for body in sent} == {3}
    assert recorder.reused == []


@pytest.mark.parametrize("mode", TravelMode)
async def test_records_that_share_a_request_give_the_same_model(
    mode: TravelMode, new_world: NewWorld, recorded: Recording
) -> None:
    """As many at once as holders bring by default: a whole visit."""
    with recording() as recorder:
        async with new_world(at_once=MAX_RECORDS_AT_ONCE) as world:
            session = await world.submit(travel_mode=mode)
            view = await world.completed(session)
            assert view["model"]["digest"] == recorded.view["model"]["digest"]
            door = "/staging" if mode is TravelMode.DIRECT else "/copy"
            assert [len(world.wire.calls(f"holder-{h}", A, door)) for h in HOLDERS] == [ROUNDS] * len(HOLDERS)
    assert recorder.reused == []


async def test_in_direct_the_gpu_never_goes_to_a_holder(new_world: NewWorld, recorded: Recording) -> None:
    """No MUX is switched and no record comes on a port: ciphertext is left in staging, and the orchestrator's command fetches it."""
    async with new_world() as world:
        session = await world.submit(travel_mode=TravelMode.DIRECT)
        view = await world.completed(session)
        assert view["bytes"]["holder_to_gpu_records"] == recorded.view["bytes"]["holder_to_gpu_records"]
        switches = [e for e in world.wire.calls(ORCH, "platform", "/mux") if b'"holder-' in e.call.body]
        assert switches == []
        for holder in HOLDERS:
            assert world.wire.calls(f"holder-{holder}", A, "/copy") == []
            assert len(world.wire.calls(f"holder-{holder}", A, "/staging")) == 2 * ROUNDS


def test_receipts_of_the_usual_session_name_its_mode(recorded: Recording) -> None:
    assert recorded.receipts.travel_mode is TravelMode.SCOPED


POINTS = {
    "orchestrator before the grant": (ORCH, Point(ORCH, A, COMMANDS, "before", 2, command="InstallGrant")),
    "orchestrator before the fence": (ORCH, Point(CITY, ORCH, "/report", "after")),
    "orchestrator in training": (ORCH, Point(ORCH, A, COMMANDS, "after", 2, command="Train")),
    "orchestrator after a commit": (ORCH, Point(ORCH, A, COMMANDS, "after", 2, command="Commit")),
    "holder after its first record": (CITY, Point(CITY, A, "/ports/holder-city", "after")),
    "holder before its report": (CITY, Point(CITY, ORCH, "/report", "before")),
}


QUICK = ("orchestrator in training", "holder before its report")


@attack(
    "V19",
    direct="stopped: facts before acts; the visit is repeated",
    paper="stopped: facts before acts; the visit is repeated",
)
@pytest.mark.parametrize("point", [p if p in QUICK else pytest.param(p, marks=pytest.mark.slow) for p in POINTS])
@pytest.mark.parametrize("mode", OTHERS)
async def test_killed_in_mid_visit(mode: TravelMode, point: str, new_world: NewWorld, recorded: Recording) -> None:
    victim, moment = POINTS[point]
    with recording() as recorder:
        async with new_world() as world:
            trap = Trap(world, moment, crash(world, victim), recorder)
            session = await world.submit(travel_mode=mode)
            await trap.done()
            view = await world.completed(session)
            assert view["model"]["digest"] == recorded.view["model"]["digest"]
    assert recorder.reused == []


@attack("V10", direct="stopped: boot counter, sealed checkpoint", paper="stopped: boot counter, sealed checkpoint")
@pytest.mark.slow
@pytest.mark.parametrize("mode", OTHERS)
async def test_gpu_wiped_in_mid_visit(mode: TravelMode, new_world: NewWorld, recorded: Recording) -> None:
    async with new_world(own_gpu=True) as world:
        with recording() as recorder:
            trap = Trap(world, Point(CITY, ORCH, "/report", "before", 2), crash(world, A), recorder)
            session = await world.submit(travel_mode=mode)
            await trap.done()
            view = await world.completed(session)
            assert view["model"]["digest"] == recorded.view["model"]["digest"]
        assert recorder.reused == []
