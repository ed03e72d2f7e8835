"""The orchestrator's database put back while it was down (attack V13): its holders remember more, and nothing goes on from it."""

from __future__ import annotations

import asyncio
import shutil
import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import httpx2
import pytest

from shared.errors import GputError
from tests.adversary.rows import attack
from tests.world.world import PATIENCE_S, NewWorld, World
from tests.world.world_faults import Point, Trap
from tests.world.world_recording import Recording
from tests.world.world_tasks import Patience
from tests.world.world_wire import Call, Deliver, cut

ORCH, A, P, CITY, HARBOUR = "orchestrator", "agent", "platform", "holder-city", "holder-harbour"


async def _killed_at(world: World, session: str, visits: int) -> Path:
    """The orchestrator is dead after so many closed visits; its folder."""
    await world.until(session, lambda view: view["visits_closed"] >= visits)
    await world[ORCH].kill()
    return world.folder / "orchestrator"


def _copy(source: Path, to: Path) -> None:
    shutil.rmtree(to, ignore_errors=True)
    shutil.copytree(source, to)


def _acts(world: World) -> list[str]:
    """What the orchestrator asked of GPU and platform, but for evidence and keys of its own."""
    return [e.call.path for server in (A, P) for e in world.wire.calls(ORCH, server) if "/cvms/" not in e.call.path]


def _offers(world: World) -> int:
    return sum(b'"offer":{' in e.answer for e in world.wire.transcript if e.call.path == "/v1/inbox")


async def _refused(world: World, session: str, code: str = "log-rolled-back") -> Any:
    """The session ends for this reason, and after the restart neither GPU nor platform nor any holder was told to do anything."""
    acts, offers = len(_acts(world)), _offers(world)
    await world[ORCH].start()
    view = await world.finish(session)
    assert view["failure"], view
    assert (view["phase"], view["failure"]["code"]) == ("FAILED", code), view["failure"]
    assert _acts(world)[acts:] == []
    assert _offers(world) == offers
    assert view["model"] is None
    return view


async def _put_back(world: World, session: str, early: int, late: int) -> None:
    """A whole copy of the data folder from after `early` visits lies in place of the one from after `late`."""
    copy = world.folder / "copy"
    _copy(await _killed_at(world, session, early), copy)
    await world[ORCH].start()
    _copy(copy, await _killed_at(world, session, late))


@attack("V13", any="stopped: heads that holders remember")
async def test_a_database_put_back_is_refused_by_name_and_nothing_is_touched(new_world: NewWorld) -> None:
    async with new_world() as world:
        session = await world.submit(rounds=4)
        await _put_back(world, session, 2, 4)
        view = await _refused(world, session)
        detail, own = view["failure"]["detail"], view["log"]
        assert any(f"{holder} remembers a log of" in detail for holder in world.holders)
        assert f"this orchestrator has {own['size']} leaves" in detail
        assert own["root"] in detail
        assert "put back the newest copy" in view["failure"]["remedy"]


@pytest.mark.parametrize("heard", [False, True])
async def test_the_newest_copy_put_back_again_goes_on_to_the_same_model(
    heard: bool, new_world: NewWorld, recorded: Recording
) -> None:
    """The remedy that the refusal names works: what the rolled-back database wrote about itself is in that database only."""
    async with new_world() as world:
        session = await world.submit()
        folder, early, late = world.folder / "orchestrator", world.folder / "early", world.folder / "late"
        _copy(await _killed_at(world, session, 1), early)
        await world[ORCH].start()
        _copy(await _killed_at(world, session, 3), late)
        _copy(early, folder)
        await _refused(world, session)
        if heard:
            assert [(await _ended(world, session, holder))["phase"] for holder in world.holders] == ["FAILED"] * 3
        await world[ORCH].kill()
        _copy(late, folder)
        await world[ORCH].start()
        view = await world.completed(session)
        assert view["model"]["digest"] == recorded.view["model"]["digest"]
        assert [(await _ended(world, session, holder))["phase"] for holder in world.holders] == ["COMPLETED"] * 3


async def test_a_visit_that_was_closed_is_not_undone_although_no_offer_showed_it(new_world: NewWorld) -> None:
    """The whole session is one visit: its holder never sees a head with its close in it, but it has the receipt."""
    async with new_world(own_gpu=True, holders=("city",)) as world:
        database, copy = world.folder / "orchestrator" / "state.db", world.folder / "copy.db"

        async def remember() -> None:
            with closing(sqlite3.connect(database)) as source, closing(sqlite3.connect(copy)) as target:
                source.backup(target)

        trap = Trap(world, Point(CITY, ORCH, "/report", "before"), remember)
        session = await world.submit(rounds=1)
        await trap.done()
        await _killed_after_receipt(world, session)
        for name in ("state.db-wal", "state.db-shm"):
            database.with_name(name).unlink(missing_ok=True)
        shutil.copyfile(copy, database)
        await world[A].kill()
        await world[A].start()
        view = await _refused(world, session)
        assert "a log of 0 leaves" in view["failure"]["detail"]
        assert "and a receipt with leaf hash" in view["failure"]["detail"]


async def _ended(world: World, session: str, holder: str) -> Any:
    """What this holder shows once it has been told of the session's end."""
    patience = Patience(PATIENCE_S)
    while (shown := await world.operator(holder).request(session))["state"] != "ended":
        assert not patience.over
        await asyncio.sleep(0.005)
    return shown


async def _killed_after_receipt(world: World, session: str) -> None:
    patience = Patience(PATIENCE_S)
    while not (await world.operator("city").get(f"receipts?session={session}"))["items"]:
        assert not patience.over
        await asyncio.sleep(0.005)
    await world[ORCH].kill()


async def test_a_gpu_that_was_reset_as_well_does_not_hide_it(new_world: NewWorld) -> None:
    """The GPU's life number died with its memory: without the holders the old checkpoint would be restored, and nobody would know."""
    async with new_world(own_gpu=True) as world:
        session = await world.submit(rounds=4)
        await _put_back(world, session, 2, 4)
        await world[A].kill()
        await world[A].start()
        await _refused(world, session)


@pytest.mark.slow
async def test_a_session_that_had_ended_does_not_run_again(new_world: NewWorld) -> None:
    async with new_world() as world:
        session = await world.submit()
        copy = world.folder / "copy"
        _copy(await _killed_at(world, session, 5), copy)
        await world[ORCH].start()
        await world.completed(session)
        for holder in world.holders:  # each has proven its receipts in the last head
            while (await world.operator(holder).request(session))["state"] != "ended":  # noqa: ASYNC110  # another process's state
                await asyncio.sleep(0.01)
        await world[ORCH].kill()
        _copy(copy, world.folder / "orchestrator")
        await _refused(world, session)


def _cut_journal(database: sqlite3.Connection, session: str) -> None:
    """Keep the first closed visit; every row that is left verifies."""
    [(last,)] = database.execute(
        "SELECT min(seq) FROM journal WHERE stream = ? AND kind = 'training.closed'", (session,)
    )
    database.execute("DELETE FROM journal WHERE stream = ? AND seq > ?", (session, last))
    database.execute("DELETE FROM log_leaves WHERE session = ? AND idx > 0", (session,))


def _back_to_ready(database: sqlite3.Connection, session: str) -> None:
    """As if it had never started: such a session would have the GPU wiped."""
    [(last,)] = database.execute("SELECT seq FROM journal WHERE stream = ? AND kind = 'session.agreed'", (session,))
    database.execute("DELETE FROM journal WHERE stream = ? AND seq > ?", (session, last))
    for table in ("log_leaves", "tree_heads", "visits", "losses"):
        database.execute(f"DELETE FROM {table} WHERE session = ?", (session,))
    database.execute("UPDATE sessions SET phase = 'READY' WHERE id = ?", (session,))


@attack("V13", any="stopped: heads that holders remember")
@pytest.mark.parametrize("edit", [_cut_journal, _back_to_ready], ids=["cut", "ready"])
async def test_rows_removed_from_the_end_are_refused(
    edit: Callable[[sqlite3.Connection, str], None], new_world: NewWorld
) -> None:
    async with new_world() as world:
        session = await world.submit(rounds=4)
        folder = await _killed_at(world, session, 4)
        with closing(sqlite3.connect(folder / "state.db")) as database, database:
            edit(database, session)
        database.close()
        await _refused(world, session)


@attack("V22", any="stopped: rows are chained by their MACs")
async def test_a_row_removed_from_the_middle_refuses_this_session_and_no_other(new_world: NewWorld) -> None:
    async with new_world() as world:
        session = await world.submit(rounds=4)
        folder = await _killed_at(world, session, 2)
        with closing(sqlite3.connect(folder / "state.db")) as database, database:
            database.execute("DELETE FROM journal WHERE stream = ? AND seq = 9", (session,))
        database.close()
        acts = len(_acts(world))
        await world[ORCH].start()
        with pytest.raises(GputError) as refusal:
            await world.owner.session(session)
        assert refusal.value.code == "journal-tampered"
        assert _acts(world)[acts:] == []
        other = await world.owner.submit(world.material.manifest(name="another", rounds=1))
        await world.completed(other["id"])


async def test_a_veto_removed_from_the_journal_is_said_again(new_world: NewWorld) -> None:
    """A veto is no leaf; the holder that is asked for its head although it vetoed repeats it."""
    async with new_world() as world:
        session = await world.submit(rounds=4)
        await world.until(session, lambda view: view["visits_closed"] >= 1)
        await world.owner.act(session, "pause")
        await world.until(session, lambda view: view["phase"] == "PAUSED")
        copy = world.folder / "copy"
        await world[ORCH].kill()
        _copy(world.folder / "orchestrator", copy)
        await world[ORCH].start()
        await world.operator("north").decide(session, "veto")
        await world.until(session, lambda view: any(h["decision"] == "veto" for h in view["holders"]))
        await world[ORCH].kill()
        _copy(copy, world.folder / "orchestrator")
        await world[ORCH].start()
        acts = len(_acts(world))
        await world.owner.act(session, "resume")
        view = await world.finish(session)
        assert (view["phase"], view["failure"]["code"]) == ("FAILED", "quorum-lost")
        assert _acts(world)[acts:] == []


@pytest.mark.slow
async def test_a_quorum_is_enough_and_a_late_holder_still_ends_a_log_that_it_does_not_know(new_world: NewWorld) -> None:
    """Only harbour saw the head that is gone, city's receipt for it was under way, and the GPU was reset: the two others confirm, and
    harbour's word comes later."""
    async with new_world(own_gpu=True) as world:
        state, early, held = world.folder / "orchestrator" / "state.db", world.folder / "early.db", False

        async def remember() -> None:
            with closing(sqlite3.connect(state)) as source, closing(sqlite3.connect(early)) as target:
                source.backup(target)

        async def put_back() -> None:
            nonlocal held
            held = True
            for service in (ORCH, A):
                await world[service].kill()
            for name in ("state.db-wal", "state.db-shm"):
                state.with_name(name).unlink(missing_ok=True)
            shutil.copyfile(early, state)
            assert not (await world.operator("city").get(f"receipts?session={session}"))["items"]
            for service in (A, ORCH):
                await world[service].start()

        async def late(call: Call, deliver: Deliver) -> httpx2.Response:
            if held and call.client == HARBOUR and call.path.endswith("/heads"):
                return cut(call)
            answer = await deliver(call)
            # A city that had its receipt would remember the visit as well, and never confirm.
            if not held and call.client == CITY and call.path == "/v1/inbox" and b'"kind":"receipt"' in answer.content:
                return cut(call)
            return answer

        world.wire.hooks.append(late)
        before_its_close = Trap(world, Point(CITY, ORCH, "/report", "before"), remember)
        after_its_close = Trap(world, Point(HARBOUR, A, "/copy", "before"), put_back)
        session = await world.submit(quorum=2, rounds=6)
        await before_its_close.done()
        await after_its_close.done()
        await world.until(session, lambda view: view["visits_closed"] >= 1)
        held = False
        view = await world.finish(session)
        assert (view["phase"], view["failure"]["code"]) == ("FAILED", "log-split-view"), view["failure"]
        assert "harbour remembers a log of 1 leaves" in view["failure"]["detail"]
