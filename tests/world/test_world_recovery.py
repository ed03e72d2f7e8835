"""An orchestrator is lost for good in mid-session; another one goes on with the shares of the holders, to the same end."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import httpx2
import pytest

from data_holder.recovery import ShareBook
from data_holder.trust import TrustAnchors
from shared.attestation.recovery import VerifiedRecovery
from shared.crypto.secret import Secret
from shared.errors import BadRequest, Unavailable
from tests.adversary.rows import attack
from tests.crash.cells import CITY, Cell
from tests.crash.reaper import Reaper
from tests.world.world import PATIENCE_S, NewWorld, World
from tests.world.world_recording import Recording
from tests.world.world_recovery import (
    ORCH,
    change,
    known_to_everybody,
    of_another_release,
    on_another_machine,
    waits,
)
from tests.world.world_wire import Call, Deliver

NORTH = "holder-north"


async def running(world: World, **changes: Any) -> str:
    session = await world.submit(**changes)
    await world.until(session, lambda view: view["visits_closed"] >= 3)
    return session


async def same_end(world: World, session: str, recorded: Recording) -> None:
    view = await world.completed(session)
    assert view["model"]["digest"] == recorded.view["model"]["digest"]
    closed = [visit["index"] for visit in await world.visits(session) if visit["phase"] == "CLOSED"]
    assert sorted(closed) == sorted(visit["index"] for visit in recorded.visits), "each visit once"


async def released(world: World, holder: str, session: str) -> list[str]:
    found: list[str] = (await world.operator(holder).request(session))["share_released_to"]
    return found


async def recovered(world: World, session: str) -> list[str]:
    """The log's leaves that say so."""
    return [event for event in await world.events(session) if "key_recovered" in event]


async def test_another_machine_goes_on_with_the_holders_shares(new_world: NewWorld, recorded: Recording) -> None:
    async with new_world() as world:
        session = await running(world)
        cursor = (await world.owner.get(f"sessions/{session}/visits", limit=1))["next"]
        await world[ORCH].kill()
        on_another_machine(world)
        await world[ORCH].start()
        await same_end(world, session, recorded)
        with pytest.raises(BadRequest) as caught:  # it was signed under a key of the other machine
            await world.owner.get(f"sessions/{session}/visits", limit=1, after=cursor)
        assert caught.value.code == "invalid-cursor"
        assert not [event for event in await world.events(session) if "'restored'" in event], "the GPU was not wiped"
        [event] = await recovered(world, session)
        for name in world.holders:
            [measurement] = await released(world, name, session)
            assert name in event
            assert measurement in event, "who gave its share, and to which measurement, is a leaf of the log"
        await world[ORCH].restart()  # its key is this machine's from now on
        assert await recovered(world, session) == [event]


@pytest.mark.slow
@attack("O02", any="stopped: holders give their shares of a session's key to known measurements only")
async def test_a_release_that_holders_do_not_know_gets_no_share_until_they_do(
    new_world: NewWorld, recorded: Recording, tmp_path: Path
) -> None:
    async with new_world() as world:
        session = await running(world)
        of_another_release(world, tmp_path / "newer")
        for name in (ORCH, "platform"):
            await world[name].kill()
        for name in ("platform", ORCH):
            await world[name].start()
        said = await waits(world, session, lambda said: said.count("share refused") == len(world.holders))
        assert said.count("cvm-measurement") == len(world.holders)
        assert [entry["waiting_for"] for entry in await world.owner.items("sessions")] != [[]]
        for name in world.holders:
            assert await released(world, name, session) == []
        known_to_everybody(world, tmp_path / "newer")
        for service in (ORCH, *(f"holder-{name}" for name in world.holders)):
            await world[service].restart()
        await same_end(world, session, recorded)
        assert len(await recovered(world, session)) == 1


@pytest.mark.slow
async def test_one_share_too_few_is_none_and_the_missing_holder_is_named(
    new_world: NewWorld, recorded: Recording
) -> None:
    async with new_world() as world:
        session = await running(world)
        for name in (ORCH, NORTH):
            await world[name].kill()
        on_another_machine(world)
        await world[ORCH].start()
        said = await waits(world, session, lambda said: said == "its holders' shares: north")
        assert "refused" not in said
        await world[NORTH].start()
        await same_end(world, session, recorded)


@pytest.mark.slow
async def test_with_k_of_n_a_holder_may_be_gone_for_good(new_world: NewWorld) -> None:
    async with new_world(settings={ORCH: {"visit_attempts": 1}}) as world:
        session = await running(world, recovery_shares=2, quorum=2, lease_s=2)
        for name in (ORCH, NORTH):
            await world[name].kill()
        on_another_machine(world)
        await world[ORCH].start()
        await world.completed(session)
        [event] = await recovered(world, session)
        assert "'north'" not in event


@pytest.mark.slow
async def test_a_holder_that_has_vetoed_gives_nothing_and_says_so(new_world: NewWorld) -> None:
    async with new_world() as world:
        session = await running(world, quorum=2, rounds=30)
        await world[ORCH].kill()
        await world.operator("north").decide(session, "veto", reason="no more")
        on_another_machine(world)
        await world[ORCH].start()
        await waits(world, session, lambda said: said.startswith("north (share refused: vetoed"))
        assert await released(world, "north", session) == []


async def test_a_share_does_not_leave_after_a_veto_that_came_while_the_orchestrator_was_asked(
    new_world: NewWorld,
) -> None:
    asked = list[str]()
    async with new_world() as world:
        session = await running(world, quorum=2, rounds=30)

        async def hook(call: Call, deliver: Deliver) -> httpx2.Response:
            answer = await deliver(call)
            if call.client == NORTH and call.method == "POST" and call.path.endswith("/share-offers") and not asked:
                asked.append(call.path)
                await world.operator("north").decide(session, "veto", reason="no more")
            return answer

        await world[ORCH].kill()
        world.wire.hooks.append(hook)
        on_another_machine(world)
        await world[ORCH].start()
        await waits(world, session, lambda said: said.startswith("north (share refused: "))
        assert asked
        assert await released(world, "north", session) == []
        assert not [one for one in world.wire.calls(NORTH, ORCH, "/share-offers/") if one.call.method == "PUT"]


async def test_a_holder_that_cannot_judge_yet_refuses_nothing_and_is_asked_no_second_time(
    new_world: NewWorld, recorded: Recording, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What it judges by is not at hand, as a revocation list that is just being written: no verdict, and none is told."""
    judge, left = TrustAnchors.verify_recovery, [Unavailable("not now", code="snp-crl-malformed")] * 4

    def later(anchors: TrustAnchors, *args: Any, **more: Any) -> VerifiedRecovery:
        if left:
            raise left.pop()
        return judge(anchors, *args, **more)

    async with new_world() as world:
        session = await running(world)
        await world[ORCH].kill()
        monkeypatch.setattr(TrustAnchors, "verify_recovery", later)
        on_another_machine(world)
        await world[ORCH].start()
        await same_end(world, session, recorded)
        assert not left
        assert not [
            one for name in world.holders for one in world.wire.calls(f"holder-{name}", ORCH, "/share-refusals")
        ]


@pytest.mark.slow
@attack("V22", any="stopped: a wrong share is no share, and its holder is named")
async def test_a_lying_holder_is_named(
    new_world: NewWorld, recorded: Recording, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with new_world() as world:
        session = await running(world)
        await world[ORCH].kill()
        shares, honest = world[NORTH].app.state.holder.runner._shares, ShareBook.find  # type: ignore[union-attr]

        async def lie(book: ShareBook, of: str) -> Secret | None:
            share = await honest(book, of)
            return share if book is not shares or share is None else Secret(bytes(32) + share.reveal()[-1:])

        monkeypatch.setattr(ShareBook, "find", lie)
        on_another_machine(world)
        await world[ORCH].start()
        said = await waits(world, session, lambda said: "refused" in said and "its holders" not in said)
        assert said == "north (share refused: share-wrong: north gave a share that is not the one it was dealt)"
        monkeypatch.undo()
        await world[NORTH].restart()
        await same_end(world, session, recorded)


@pytest.mark.slow
async def test_a_deleted_key_row_loses_the_session_and_selects_no_other_key(new_world: NewWorld) -> None:
    async with new_world() as world:
        session = await running(world, rounds=30)
        await world[ORCH].kill()
        change(world, "DELETE FROM session_keys")
        await world[ORCH].start()
        with pytest.raises(Exception, match="does not verify") as caught:
            await world.owner.session(session)
        assert getattr(caught.value, "code", None) == "journal-tampered"


@pytest.mark.slow
async def test_a_changed_key_row_is_healed_by_the_holders(new_world: NewWorld, recorded: Recording) -> None:
    async with new_world() as world:
        session = await running(world)
        await world[ORCH].kill()
        change(world, "UPDATE session_keys SET sealed = :junk", junk=b"\x00" * 64)
        await world[ORCH].start()
        await same_end(world, session, recorded)
        assert len(await recovered(world, session)) == 1


CELLS = [
    Cell(service, "commit", service, step, moment)
    for service, step in ((ORCH, "session.key_recovered"), (CITY, "holder.share_released"))
    for moment in ("before", "after")
]


@pytest.mark.slow
@pytest.mark.parametrize("cell", CELLS, ids=str)
async def test_whoever_dies_at_it(new_world: NewWorld, recorded: Recording, cell: Cell) -> None:
    reaper = Reaper(cell)
    async with new_world() as world:
        with reaper.watching():
            session = await running(world)
            await world[ORCH].kill()
            on_another_machine(world)
            stage: Any = SimpleNamespace(world=world, restart=lambda service: world[service].restart())
            reaper.arm(stage)
            await world[ORCH].start()
            await reaper.done(PATIENCE_S)
            await same_end(world, session, recorded)
            assert len(await recovered(world, session)) == 1
