"""What a successor is refused for: by the orchestrator at its submission, and by each holder that an orchestrator has lied to."""

from __future__ import annotations

import sqlite3
from base64 import b64encode
from collections.abc import Callable
from contextlib import closing
from typing import Any
from unittest.mock import patch

import pytest

import orchestrator.sessions.heritage as heritage
from gput.client import UNATTESTED, AsyncClient
from shared.claims.manifest import OutputPolicy
from shared.crypto.signing import PartyKey
from shared.errors import Conflict, InvalidManifest, VerificationFailed
from shared.service.http import Peers
from tests.successors.successor_world import CAME, FIRST, LEFT, NewWorld, Rested, SuccessorWorld
from tests.world.world import url
from tests.world.world_wire import Link


async def refused(world: SuccessorWorld, manifest: Any, owner: AsyncClient | None = None) -> tuple[str, str]:
    """(code, field of the first finding) with which a submission is refused, and with which it was said beforehand that it would be."""
    client = owner or world.owner
    with pytest.raises(InvalidManifest) as before:
        await client.would("sessions", body={"document": b64encode(manifest.canonical()).decode()})
    with pytest.raises(InvalidManifest) as caught:
        await client.submit(manifest)
    told = ("code", "detail", "remedy", "errors")
    assert [getattr(before.value, name) for name in told] == [getattr(caught.value, name) for name in told]
    assert caught.value.status == 422
    assert caught.value.remedy
    assert caught.value.errors
    return str(caught.value.code), caught.value.errors[0]["field"]


WRONG: dict[str, tuple[dict[str, Any], tuple[str, str]]] = {
    "another model": ({"model": "1" * 64}, ("predecessor-mismatch", "predecessor.model")),
    "another optimiser state": ({"optimiser": "1" * 64}, ("predecessor-mismatch", "predecessor.optimiser")),
    "another step": ({"step": 3}, ("predecessor-mismatch", "predecessor.step")),
    "another manifest": ({"manifest": "1" * 64}, ("predecessor-mismatch", "predecessor.manifest")),
    "another log": ({"log_root": "1" * 64}, ("predecessor-mismatch", "predecessor.log_root")),
    "a shorter log": ({"log_size": 1}, ("predecessor-mismatch", "predecessor.log_size")),
    "another session": ({"session": "s_aaaaaaaaaaaaaaaa"}, ("unknown-predecessor", "predecessor.session")),
}


async def test_a_predecessor_is_read_off_and_not_chosen(again: NewWorld, rested: Rested) -> None:
    async with again() as world:
        for says, expected in WRONG.values():
            assert await refused(world, await world.wanted(rested.session, says=says)) == expected
        named = (await world.rest(rested.session)).contributors
        assert [one.holder for one in named] == sorted(FIRST)
        without = tuple(one for one in named if one.holder != LEFT)
        wanted = await world.wanted(rested.session, says={"contributors": without})
        assert await refused(world, wanted) == ("predecessor-mismatch", "predecessor.contributors")
        wanted = await world.wanted(rested.session, output=OutputPolicy(release_to=("owner", "holders")).model_dump())
        assert await refused(world, wanted) == ("successor-wider", "output.release_to")
        assert [item["id"] for item in await world.owner.items("sessions")] == [rested.session]


async def test_a_session_that_goes_on_is_ended_first(new_world: NewWorld) -> None:
    async with new_world() as world:
        session = await world.left()
        with pytest.raises(Conflict) as caught:
            await world.succeed(session)
        assert (caught.value.code, "gput session cancel" in str(caught.value.remedy)) == ("predecessor-not-ended", True)
        await world.owner.act(session, "pause")
        await world.until(session, lambda view: view["phase"] == "PAUSED")
        with pytest.raises(Conflict) as caught:
            await world.succeed(session)
        assert caught.value.code == "predecessor-not-ended"
        await world.owner.act(session, "cancel")
        await world.completed(await world.succeed(session))


async def test_another_owners_session_is_not_gone_on_with(again: NewWorld, rested: Rested) -> None:
    async with again() as world:
        other = PartyKey.generate(lambda n: b"\x31" * n)
        (world.folder / "owners" / "mallory.pub").write_bytes(other.public_pem)
        peers = Peers(transports={url("orchestrator"): Link(world.wire, "owner", "orchestrator")})
        async with AsyncClient(url("orchestrator"), other, trust=UNATTESTED, peers=peers) as mallory:
            wanted = await world.wanted(rested.session)
            assert await refused(world, wanted, mallory) == ("predecessor-not-yours", "predecessor.session")


async def test_without_its_sealed_model_there_is_nothing_to_go_on_with(again: NewWorld, rested: Rested) -> None:
    async with again() as world:
        wanted = await world.wanted(rested.session)
        for path in (world.folder / "orchestrator" / "sessions" / rested.session / "checkpoints").iterdir():
            path.unlink()
        assert await refused(world, wanted) == ("predecessor-without-model", "predecessor.session")


async def test_from_an_older_head_that_was_put_back_nobody_goes_on(again: NewWorld, rested: Rested) -> None:
    """It was taken for where the log ended: holders were asked to go on from a log without receipts that they have."""
    async with again() as world:
        wanted, path = await world.wanted(rested.session), f"sessions/{rested.session}"
        last = (await world.owner.items(f"{path}/receipts"))[-1]["index"]
        older = await world.owner.get(f"{path}/log/inclusion", index=0, size=last)
        [database] = (world.folder / "orchestrator").glob("*.db")
        with closing(sqlite3.connect(database)) as connection, connection:
            values = (older["size"], older["root"], rested.session)
            connection.execute("UPDATE tree_heads SET size = ?, root = ? WHERE session = ?", values)
        for ask in (world.rest(rested.session), world.owner.submit(wanted)):
            with pytest.raises(VerificationFailed) as caught:
                await ask
            assert caught.value.code == "log-rolled-back"


async def test_a_predecessor_stays_until_its_successor_has_a_model_of_its_own(again: NewWorld, rested: Rested) -> None:
    async with again(approve="manual") as world:
        after = await world.succeed(rested.session)
        with pytest.raises(Conflict) as caught:
            await world.owner.delete(rested.session)
        assert (caught.value.code, after in caught.value.detail) == ("session-needed", True)
        for name in (CAME, "city", "north"):
            await world.operator(name).decide(after, "approve", dataset="ehr")
        await world.until(after, lambda view: view["visits_closed"] > 0 or view["phase"] == "COMPLETED")
        await world.owner.delete(rested.session)
        view = await world.completed(after)
        assert view["model"]["digest"] == rested.model["digest"]


async def test_a_file_that_was_changed_fails_the_successor(again: NewWorld, rested: Rested) -> None:
    async with again(approve="manual") as world:
        after = await world.succeed(rested.session)
        for path in (world.folder / "orchestrator" / "sessions" / rested.session / "checkpoints").iterdir():
            data = bytearray(path.read_bytes())
            data[-1] ^= 1
            path.write_bytes(data)
        for name in (CAME, "city", "north"):
            await world.operator(name).decide(after, "approve", dataset="ehr")
        view = await world.finish(after)
    assert view["phase"] == "FAILED"
    assert view["step"] == 0


def _lie(**changes: Any) -> Callable[[SuccessorWorld, str], Any]:
    async def wanted(world: SuccessorWorld, session: str) -> Any:
        return await world.wanted(session, says=changes)

    return wanted


async def _without(world: SuccessorWorld, session: str) -> Any:
    kept = tuple(one for one in (await world.rest(session)).contributors if one.holder != "city")
    return await world.wanted(session, says={"contributors": kept})


OTHER, UNPROVEN = ("predecessor-mismatch",), ("bad-consistency-proof", "consistency")
LIES: dict[str, tuple[Callable[[SuccessorWorld, str], Any], tuple[str, ...]]] = {
    "another model": (_lie(model="1" * 64), OTHER),
    "another log": (_lie(log_root="1" * 64), UNPROVEN),
    "an older log": (_lie(log_size=1), OTHER),
    "another manifest": (_lie(manifest="1" * 64), OTHER),
    "a contributor is kept quiet about": (_without, OTHER),
}


@pytest.mark.parametrize("lie", LIES)
async def test_a_holder_does_not_approve_what_it_knows_better(lie: str, again: NewWorld, rested: Rested) -> None:
    """An orchestrator that lets anything pass: whoever took part in the predecessor finds out, and the session does not begin."""
    make, codes = LIES[lie]
    with patch.object(heritage, "mismatches", lambda said, found: []):
        async with again() as world:
            after = str((await world.owner.submit(await make(world, rested.session)))["id"])
            # Only whose visit ended there remembers the model of that step.
            said = await world.refusal("north" if lie == "another model" else "city", after)
            assert any(code in said for code in codes), said
            assert (await world.owner.session(after))["phase"] == "AWAITING_APPROVAL"


@pytest.mark.parametrize(
    "done", ["DELETE FROM holder_receipts", "UPDATE holder_receipts SET outcome = 'rejected', verified = false"]
)
async def test_a_holder_remembers_its_receipts_whatever_its_database_says(
    done: str, again: NewWorld, rested: Rested
) -> None:
    """Who keeps quiet about a contributor owns that contributor's disk as well."""
    with patch.object(heritage, "mismatches", lambda said, found: []):
        async with again() as world:
            [path] = (world.folder / "holder-city").glob("*.db")
            with closing(sqlite3.connect(path)) as connection, connection:
                assert connection.execute(done).rowcount > 0
            connection.close()
            after = str((await world.owner.submit(await _without(world, rested.session)))["id"])
            assert "predecessor-mismatch" in await world.refusal("city", after)


async def test_a_holder_does_not_approve_what_those_who_left_did_not_agree_to(new_world: NewWorld) -> None:
    with (
        patch.object(heritage, "succession_findings", lambda *documents: []),
        patch("gput.succession.succession_findings", lambda *documents: []),
        patch("gput.succession.barred", lambda old: []),
        patch("orchestrator.sessions.succession.barred", lambda old: []),
    ):
        async with new_world() as world:
            after = await world.succeed(await world.ended(continuation="refused"))
            for name in (CAME, "city"):  # who came, too, though it remembers nothing
                assert "continuation-refused" in await world.refusal(name, after)
            assert (await world.owner.session(after))["phase"] == "AWAITING_APPROVAL"
