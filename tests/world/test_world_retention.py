"""A finished session that was kept long enough is gone, from every table and folder; the one that runs beside it loses nothing."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx2
import pytest
import sqlalchemy as sa

from data_holder.tables import schema as holder_schema
from orchestrator import tables
from orchestrator.runner import retention
from shared.errors import Conflict, NotFound, Unavailable
from shared.service import retention as shared_retention
from shared.service import steady_clock
from shared.service.tables import IDEMPOTENT_REPLIES
from tests.world.test_world_upgrade import contents
from tests.world.world import PATIENCE_S, NewWorld, World
from tests.world.world_hand import at_hand
from tests.world.world_recording import Recording
from tests.world.world_wire import Call, Deliver

ORCH, NORTH = "orchestrator", "holder-north"
BRIEF = {"keep_finished_s": 0.001}
ALL_BRIEF = dict.fromkeys((ORCH, NORTH, "holder-city", "holder-harbour"), BRIEF)
MIDDLE = 30
"""Of a session's batches of commands."""
OUTLIVE = ("tree_heads", "idempotent_replies")
"""The signed head stays for good; an answer to an Idempotency-Key for a day."""


def named(folder: Path, session: str, *outlive: str) -> list[str]:
    """Rows and files of a service that name the session."""
    url = f"sqlite:///{next(folder.glob('*.db'))}"
    rows = [name for name, rows in contents(url).items() if name not in outlive and session in repr(rows)]
    files = [str(path) for path in folder.rglob("*") if session in path.name]
    return rows + files


@pytest.fixture(autouse=True)
def settle_s(monkeypatch: pytest.MonkeyPatch) -> None:
    """What was kept long enough goes with the first sweep of a process."""
    monkeypatch.setattr(steady_clock, "SETTLE_S", 0.0)


async def sweep(world: World, service: str) -> None:
    app = world[service].app
    assert app is not None
    if service == ORCH:
        await retention.Retention(app.state.orchestrator.house).sweep()
    else:
        await app.state.holder.runner.retention.sweep()


async def finished(world: World) -> str:
    session = await world.submit()
    await settled(world, session)
    return session


async def settled(world: World, session: str) -> None:
    """Until it is completed, and every holder has heard of that: nobody adds a row afterwards."""
    await world.completed(session)
    for name in world.holders:  # each hears of the end, and proves its receipts first
        await world.operator(name).request(session, phase="COMPLETED")
        await heard(world, session, name)


async def heard(world: World, session: str, holder: str) -> None:
    """Until the orchestrator knows that the holder has heard of the end."""
    said = await world.seen(f"holder-{holder}", ORCH, f"{session}/end")
    while not said.status:  # noqa: ASYNC110  # an exchange tells nobody that it is over
        await asyncio.sleep(0.01)


@asynccontextmanager
async def running(world: World) -> AsyncIterator[str]:
    """A session in its middle: a command stays on the wire, so it cannot end, and be removed as well, before the block does."""
    go_on, passed = asyncio.Event(), 0

    async def hold(call: Call, deliver: Deliver) -> httpx2.Response:
        nonlocal passed
        if call.link == (ORCH, "agent") and call.path.endswith("/commands"):
            passed += 1
            if passed > MIDDLE:
                await go_on.wait()
        return await deliver(call)

    world.wire.patient.add(ORCH)
    world.wire.hooks.append(hold)
    view: Any = await world.owner.submit(world.material.manifest(name="another study"))
    await world.until(view["id"], lambda view: view["visits_closed"] >= 1)
    try:
        yield str(view["id"])
    finally:
        go_on.set()


async def test_a_finished_session_goes_and_a_running_one_loses_nothing(
    new_world: NewWorld, recorded: Recording
) -> None:
    async with new_world(settings=ALL_BRIEF) as world:
        old = await finished(world)
        head = await world.owner.get(f"sessions/{old}/log/head")
        async with running(world) as young:
            for service in ALL_BRIEF:
                assert named(world.folder / service, old, *OUTLIVE)
                await sweep(world, service)
                assert named(world.folder / service, old, *OUTLIVE) == []
                assert named(world.folder / service, young)
        rows = contents(f"sqlite:///{next((world.folder / ORCH).glob('*.db'))}")["tree_heads"]
        assert [row[1:3] for row in rows if row[0] == old] == [(head["size"], head["root"])]
        with pytest.raises(NotFound):
            await world.owner.session(old)
        view = await world.completed(young)
        assert view["model"]["digest"] == recorded.view["model"]["digest"]
        receipts = await world.owner.items(f"sessions/{young}/receipts")
        assert len(receipts) == view["visits_closed"] == len(recorded.visits)
        norths = await world.owner.items(f"sessions/{young}/receipts", holder="north")
        assert norths == [receipt for receipt in receipts if receipt["holder"] == "north"] != []
        for service in (ORCH, NORTH):
            await world[service].restart()
        assert [entry["id"] for entry in await world.owner.items("sessions")] in ([], [young])


async def test_killed_in_the_middle_it_goes_on(new_world: NewWorld, monkeypatch: pytest.MonkeyPatch) -> None:
    async with new_world(settings=ALL_BRIEF) as world:
        old = await finished(world)
        bite, taken = shared_retention._bite, 0

        def few(*arguments: Any) -> bool:
            nonlocal taken
            taken += 1
            if taken == 3:
                raise Unavailable("killed", code="killed")
            return bite(*arguments)

        for service in (ORCH, NORTH):
            taken = 0
            with monkeypatch.context() as patch:
                patch.setattr(shared_retention, "BITE", 2)
                patch.setattr(shared_retention, "_bite", few)
                with pytest.raises(Unavailable, match="killed"):
                    await sweep(world, service)
            assert named(world.folder / service, old, *OUTLIVE)
            await world[service].kill()
            await world[service].start()
            await sweep(world, service)
            assert named(world.folder / service, old, *OUTLIVE) == []
        with pytest.raises(NotFound):
            await world.owner.session(old)


async def test_an_owner_removes_a_finished_session_before_its_time(new_world: NewWorld) -> None:
    async with new_world() as world:
        session = await finished(world)
        model = world.folder / ORCH / "sessions" / session / "model.sealed"
        assert model.is_file()
        async with running(world) as young:
            with pytest.raises(Conflict) as caught:
                await world.owner.delete(young)
            assert caught.value.code == "session-not-ended"
            await world.owner.delete(session)
            assert not model.exists(), "at once, and not with the next sweep"
            with_keys = {"session_keys", "session_secrets"}
            assert with_keys.isdisjoint(named(world.folder / ORCH, session)), "what is left anywhere opens no more"
            for ask in (world.owner.session, world.owner.delete):
                with pytest.raises(NotFound):
                    await ask(session)
            await sweep(world, ORCH)
            assert named(world.folder / ORCH, session, *OUTLIVE) == []
        await world.completed(young)
        assert await world.operator("north").request(session, phase="COMPLETED"), "a holder keeps what is its own"


async def cancelled_without_north(world: World) -> str:
    """Removed at once after its end, while a holder that has a receipt to come is away."""
    session = await world.submit()
    await world.until(session, lambda view: view["visits_closed"] >= 3)
    await world[NORTH].kill()
    await world.owner.act(session, "cancel")
    assert (await world.finish(session))["phase"] == "CANCELLED"
    await world.owner.delete(session)
    return session


async def gone(world: World, session: str) -> None:
    async with asyncio.timeout(PATIENCE_S):
        await _unlisted(world, session)


async def _unlisted(world: World, session: str) -> None:
    while session in [one["id"] for one in await world.owner.items("sessions")]:  # noqa: ASYNC110  # another process's state
        await asyncio.sleep(0.04)


async def test_a_holder_that_was_away_still_gets_its_receipts_and_hears_of_the_end(
    new_world: NewWorld, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    async with new_world() as world:
        hand = at_hand(world, tmp_path, capsys, monkeypatch)
        session = await cancelled_without_north(world)
        for name in ("city", "harbour"):
            await heard(world, session, name)
        view = await world.owner.session(session)
        assert (view["removal"]["waits_for"], view["waiting_for"]) == (["north"], ["north (last receipts)"])
        owed = [item["index"] for item in await world.owner.items(f"sessions/{session}/receipts", holder="north")]
        assert "session_secrets" not in named(world.folder / ORCH, session), "its checkpoints open no more"
        assert not (world.folder / ORCH / "sessions" / session).exists()
        await world[ORCH].restart()
        await sweep(world, ORCH)
        said = await hand("session", "delete", session, "--yes")  # said twice, it waits all the same
        assert "receipts and log wait for north, until 20" in said[2]
        await world[NORTH].start()
        operator = world.operator("north")
        await operator.request(session, phase="CANCELLED")
        await gone(world, session)
        got = (await operator.get(f"receipts?session={session}"))["items"]
        assert [(one["index"], one["verified"]) for one in got] == [(index, True) for index in owed] != []
        await sweep(world, ORCH)
        assert named(world.folder / ORCH, session, *OUTLIVE) == []


async def test_it_waits_for_a_holder_for_so_long_and_no_longer(new_world: NewWorld) -> None:
    async with new_world(settings={ORCH: {"keep_removed_s": 3600.0}}) as world:
        session = await cancelled_without_north(world)
        await sweep(world, ORCH)
        assert (await world.owner.session(session))["removal"]
        world.offset += 3601
        await sweep(world, ORCH)
        assert named(world.folder / ORCH, session, *OUTLIVE) == []


async def test_of_two_removals_at_once_one_is_done_and_the_other_finds_nothing(new_world: NewWorld) -> None:
    async with new_world() as world:
        for _ in range(3):
            session = await finished(world)
            done = await asyncio.gather(*(world.owner.delete(session) for _ in range(4)), return_exceptions=True)
            assert sorted(getattr(one, "code", "done") for one in done) == ["done", *["unknown-session"] * 3]


@pytest.mark.slow
async def test_what_is_not_due_stays_and_its_id_is_not_given_again(new_world: NewWorld) -> None:
    async with new_world() as world:
        await world.enrol()
        manifest = world.material.manifest()
        session = str((await world.owner.submit(manifest, idempotency_key="once"))["id"])
        await settled(world, session)
        before = named(world.folder / ORCH, session)
        await sweep(world, ORCH)
        assert named(world.folder / ORCH, session) == before
        app = world[ORCH].app
        assert app is not None
        app.state.orchestrator.house.settings.keep_finished_s = 0.001
        await sweep(world, ORCH)
        assert (await world.owner.submit(manifest, idempotency_key="once"))["id"] == session, "the first answer again"
        # A day later.
        await app.state.orchestrator.store.write(lambda c: c.execute(sa.delete(IDEMPOTENT_REPLIES)))
        with pytest.raises(Conflict) as caught:
            await world.owner.submit(manifest, idempotency_key="once")
        assert caught.value.code == "session-removed"


def test_every_table_with_a_session_in_it_is_known_to_the_removal() -> None:
    named = {table.name for table in tables.METADATA.sorted_tables if "session" in table.c}
    assert named - {column.table.name for column in retention.OWNED} == {"tree_heads"}
    holders = {table.name for table in holder_schema.METADATA.sorted_tables if "session" in table.c}
    assert holders == {"holder_requests", "holder_visits", "holder_receipts", "holder_recovery_shares"}
