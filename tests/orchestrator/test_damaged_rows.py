"""One session's rows that somebody has changed into what no row of ours is: it is refused by name, and every other one goes on."""

from __future__ import annotations

import asyncio
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest.mock import Mock

import pytest
from sqlalchemy import Connection, text

from orchestrator.holders.inbox import Inboxes
from orchestrator.party_rules import sessions_with
from orchestrator.runner import supervisor as supervisors
from orchestrator.runner.recoveries import Recoveries
from orchestrator.runner.supervisor import Supervisor
from orchestrator.runner.unused import _documents
from orchestrator.sessions.catalogue import Catalogue
from orchestrator.sessions.removals import Removals, naming
from orchestrator.sessions.rows import roster_of
from shared.errors import GputError, VerificationFailed
from shared.service.app import service_state
from shared.service.changes import Stopping
from tests.orchestrator.orchestrator_samples import SESSION, Room, key, manifest
from tests.orchestrator.orchestrator_world import OWNER, World, opened, prepared, submit

OTHER, ANOTHER_CVM = "s_bbbbbbbbbbbbbbbb", b"another CVM"
SURROGATE = """'{"holders": [], "name": "\\ud800"}'"""
SUMMARIES = {
    "cut": "'{'", "too deep": f"'{'[' * 100_000}'", "a list": "'[]'", "no text": "CAST(x'ff' AS TEXT)", "a number": "7",
    "nothing in it": "'{}'", "holders that are none": """'{"holders": [5]}'""", "holders without names": """'{"holders": [{}]}'""",
    "a phase that is none": "json_set(summary, '$.phase', 'SOON')", "a GPU that is none": "json_set(summary, '$.gpu', json('[]'))",
    "no list of who is waited for": "json_remove(summary, '$.waiting_for')", "a name that is none": "json_set(summary, '$.id', 7)",
    "a time that never comes": f"json_set(summary, '$.paused_at', json('{'9' * 400}'))", "half a character": SURROGATE,
    "a time that is none": """'{"holders": [], "paused_at": "soon"}'""",
}  # fmt: skip
ROWS = {
    "owner_key not hex": "sessions SET owner_key='zz' WHERE id",
    "owner_key short": "sessions SET owner_key='00' WHERE id",
    "owner_key no text": "sessions SET owner_key=CAST(x'ff' AS TEXT) WHERE id",
    "owner_key bytes": "sessions SET owner_key=x'ff' WHERE id",
    "manifest garbage": "sessions SET manifest=x'ff00' WHERE id",
    "manifest text": "sessions SET manifest='abc' WHERE id",
    "signature text": "sessions SET signature='abc' WHERE id",
    "signature a huge number": "sessions SET signature=9223372036854775807 WHERE id",
    "summary cut": "sessions SET summary='{' WHERE id",
    "summary no text": "sessions SET summary=CAST(x'ff' AS TEXT) WHERE id",
    "summary too deep": f"sessions SET summary={SUMMARIES['too deep']} WHERE id",
    "digests cut": "session_keys SET digests='{' WHERE session",
    "sealed text": "session_keys SET sealed='abc' WHERE session",
    "chain text": "journal SET chain='abc' WHERE stream",
    "chain number": "journal SET chain=3 WHERE stream",
    "kind bytes": "journal SET kind=x'ff' WHERE stream",
    "kind no text": "journal SET kind=CAST(x'ff' AS TEXT) WHERE stream",
    "at text": "journal SET at='abc' WHERE stream",
    "body no text": "journal SET body=CAST(x'7bff7d' AS TEXT) WHERE stream",
    "body number": "journal SET body=7 WHERE stream",
    "seq text": "journal SET seq='abc' WHERE stream",
}


async def changed(room: Room, what: str, session: str = SESSION) -> None:
    await room.store.write(lambda c: c.execute(text(f"UPDATE {what} = '{session}'")))


async def two(folder: Path) -> tuple[Room, Catalogue]:
    room = Room(folder)
    catalogue = await room.catalogue()
    for session in (SESSION, OTHER):
        await room.submitted(catalogue, session)
    return room, catalogue


@pytest.mark.parametrize("which", ROWS)
async def test_it_is_refused_by_name_and_the_other_goes_on(tmp_path: Path, which: str) -> None:
    """Each of these kept the orchestrator from starting, for ever, or could have."""
    room, _ = await two(tmp_path)
    await changed(room, ROWS[which])
    again = await room.catalogue()
    for _ in range(2):
        assert [book.state.id for book in await again.live()] == [OTHER]
    assert again.away == set()
    with pytest.raises(GputError) as refusal:
        await again.open(SESSION)
    assert refusal.value.code in ("journal-tampered", "manifest-changed", "invalid-manifest")
    await room.store.close()


@pytest.mark.parametrize("which", SUMMARIES)
async def test_a_list_has_the_others_and_loses_its_place_nowhere(tmp_path: Path, which: str) -> None:
    room, catalogue = await two(tmp_path)
    await changed(room, f"sessions SET summary={SUMMARIES[which]} WHERE id")
    found = await catalogue.page(0, 10)
    assert [(row["id"], row["number"], row["summary"] is None) for row in found] == [
        (SESSION, 1, True),
        (OTHER, 2, False),
    ]
    assert roster_of(found[1]) == ("h0", "h1", "h2")
    with pytest.raises(VerificationFailed) as refusal:
        roster_of(found[0])
    assert refusal.value.code == "journal-tampered"
    await room.store.write(lambda c: c.execute(text("UPDATE sessions SET phase='COMPLETED'")))
    assert {row["id"]: row["summary"] is None for row in await catalogue.recently_ended(10)} == {
        SESSION: True,
        OTHER: False,
    }
    removals = Removals(room.store)
    for session in (SESSION, OTHER):
        assert await removals.ask(session, 1.0, ())
    assert {row["id"]: row["summary"] is None for row in await removals.asked()} == {SESSION: True, OTHER: False}
    await room.store.close()


async def test_nothing_is_removed_on_the_word_of_a_manifest_that_is_none(tmp_path: Path) -> None:
    room, _ = await two(tmp_path)
    await changed(room, "sessions SET manifest='abc' WHERE id")
    assert await room.store.read(lambda c: naming(c, OTHER)) == [SESSION]
    await room.store.close()


@pytest.mark.parametrize(
    "which", [name for name in ROWS if not name.startswith(("chain", "kind", "at", "body", "seq"))]
)
async def test_no_holder_is_asked_for_its_key_and_the_others_holders_are(tmp_path: Path, which: str) -> None:
    room, _ = await two(tmp_path)
    await changed(room, ROWS[which])
    catalogue = await room.catalogue(ANOTHER_CVM)
    house: Any = SimpleNamespace(
        catalogue=catalogue, store=room.store, entropy=lambda count: bytes(count), inboxes=Inboxes(lambda: 1.0, Stopping())
    )  # fmt: skip
    assert await catalogue.live() == []
    catalogue.away.add(SESSION)
    recoveries = Recoveries(house, Mock())
    await recoveries.look()
    asked = [recovery.id for recovery in recoveries.asks("h0")]
    # A sealed key that is none is like one of another CVM's.
    assert asked == ([SESSION, OTHER] if which == "sealed text" else [OTHER])
    await recoveries.stop()
    await room.store.close()


async def _damage(world: World, what: str) -> None:
    def act(connection: Connection) -> None:
        connection.execute(text(what))

    store = service_state(world.app).store
    assert store is not None
    await store.write(act)


async def test_the_service_starts_and_lists_what_can_be_read(installation: Path, tmp_path: Path) -> None:
    for name in ("trust", "owners"):
        (tmp_path / name).symlink_to(installation / name)
    async with opened(tmp_path) as world:
        owner, sessions = await prepared(world), list[str]()
        for number in range(4):
            sessions.append((await submit(owner, f"act-{number}")).json()["id"])
        await _damage(world, f"UPDATE sessions SET owner_key='zz' WHERE id='{sessions[0]}'")
        await _damage(world, f"UPDATE sessions SET summary='{{' WHERE id='{sessions[1]}'")
        await _damage(world, f"UPDATE sessions SET manifest='abc' WHERE id='{sessions[2]}'")
    async with opened(tmp_path) as world:
        owner = world.client(OWNER)
        for who, seen in ((owner, [0, 2, 3]), (world.client(key(1)), [0, 3])):
            found, path = list[str](), "/v1/sessions?limit=1"
            while path:
                answer = await who.get(path)
                assert answer.status_code == 200
                found += [view["id"] for view in answer.json()["items"]]
                path = answer.links["next"]["url"] if "next" in answer.links else ""
            assert found == [sessions[number] for number in seen]
            inbox = (await who.get("/v1/inbox")).json() if who is not owner else {"items": []}
            assert {item["session"] for item in inbox["items"]} <= {sessions[3]}
        for number in range(3):
            refused = (await owner.get(f"/v1/sessions/{sessions[number]}")).json()
            assert refused["code"] == "journal-tampered"
        assert (await owner.get(f"/v1/sessions/{sessions[3]}")).status_code == 200
        assert (await owner.get(f"/v1/sessions/{sessions[3]}/estimate")).status_code == 200


@pytest.mark.parametrize("column", ["sessions.id", "parties.name", "party_keys.came", "programs.digest"])
async def test_one_flipped_bit_takes_neither_the_start_nor_a_list_away(
    installation: Path, tmp_path: Path, column: str
) -> None:
    """SQLite's driver refused the whole statement that met text that is none."""
    for name in ("trust", "owners"):
        (tmp_path / name).symlink_to(installation / name)
    table, _, name = column.partition(".")
    async with opened(tmp_path) as world:
        owner = await prepared(world)
        sessions = [(await submit(owner, act)).json()["id"] for act in ("one", "two")]
        whole = {path: len((await owner.get(path)).json()["items"]) for path in ("/v1/parties", "/v1/programs")}
        first = f"{name} = (SELECT min({name}) FROM {table})"
        await _damage(world, f"UPDATE {table} SET {name} = CAST(x'5bff5d' AS TEXT) WHERE {first}")
    async with opened(tmp_path) as world:
        owner = world.client(OWNER)
        assert (await owner.get(f"/v1/sessions/{max(sessions)}")).status_code == 200
        assert {path: len((await owner.get(path)).json()["items"]) for path in whole} == whole


async def test_who_looks_at_the_sessions_again_outlives_what_breaks_a_look(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(supervisors, "LOOK_AGAIN_S", 0)
    catalogue, looks, enough = Mock(), list[int](), asyncio.Event()

    async def wait(seen: int, seconds: float) -> int:
        return seen + 1

    catalogue.doubts.wait = wait
    supervisor = Supervisor(Mock(catalogue=catalogue))

    async def look() -> None:
        looks.append(1)
        if len(looks) == 2:
            enough.set()
        raise TypeError("as a bug would")

    monkeypatch.setattr(supervisor, "look", look)
    settling = asyncio.create_task(supervisor._settle(0))
    async with asyncio.timeout(60):
        await enough.wait()
    assert not settling.done()
    settling.cancel()
    await asyncio.wait([settling])


async def test_a_key_may_be_replaced_though_another_sessions_row_is_damaged(tmp_path: Path) -> None:
    room, _ = await two(tmp_path)
    await changed(room, ROWS["summary cut"])
    assert await room.store.read(lambda connection: sessions_with(connection, "h0")) == [OTHER]
    await room.store.close()


@pytest.mark.parametrize("which", ["manifest garbage", "manifest text"])
async def test_what_other_sessions_name_is_still_found(tmp_path: Path, which: str) -> None:
    """Else unused uploads would never be tidied up again."""
    room, _ = await two(tmp_path)
    await changed(room, ROWS[which])
    whole = manifest().program
    assert any(whole in text for text in await room.store.read(lambda connection: list(_documents(connection))))
    await room.store.close()


APPROVAL = "INSERT INTO approvals VALUES ('{0}', 1, 'h0', 'approve', %s, x'00', 1.0)"
CLOSED = "INSERT INTO visits VALUES ('{1}', '{0}', 1, 'h0', 'CLOSED', '[]')"
SHOWN = {
    "an approval": (APPROVAL % "x'ff'", "/v1/sessions/{0}/approvals"),
    "an approval without members": (APPROVAL % "CAST('[]' AS BLOB)", "/v1/sessions/{0}/approvals"),
    "a token": ("INSERT INTO attestations VALUES (1, '{0}', 'gpu', 1, '00', 'no token')", "/v1/sessions/{0}/attestations"),
    "visits": (CLOSED, "/v1/sessions/{0}/visits"),
    "a visit": (CLOSED, "/v1/visits/{1}"),
}  # fmt: skip
VISIT = "v_00000000000000aa"


@pytest.mark.parametrize("which", SHOWN)
async def test_what_is_only_shown_is_refused_by_name_and_blames_nobody_who_asks(world: World, which: str) -> None:
    owner = await prepared(world)
    session = (await submit(owner)).json()["id"]
    damage, path = SHOWN[which]
    await _damage(world, damage.format(session, VISIT))
    refused = await owner.get(path.format(session, VISIT))
    assert (refused.status_code, refused.json()["code"]) == (403, "journal-tampered"), refused.text
    assert (await owner.get(f"/v1/sessions/{session}")).status_code == 200


@pytest.mark.parametrize(
    "data",
    ['{"durations": 7}', '{"durations": {"train": "x"}, "steps": 2}', '{"durations": {"train": 1}, "steps": 0}', "[]", "7",
     '{"durations": {"train": 1}, "steps": 2, "length": []}'],
)  # fmt: skip
async def test_an_estimate_is_told_by_the_others(world: World, data: str) -> None:
    owner = await prepared(world)
    damaged, asked = [(await submit(owner, name)).json()["id"] for name in ("one", "two")]
    await _damage(world, f"INSERT INTO visits VALUES ('{VISIT}', '{damaged}', 1, 'h0', 'CLOSED', '{data}')")
    answer = await owner.get(f"/v1/sessions/{asked}/estimate")
    assert answer.status_code == 200, answer.text
