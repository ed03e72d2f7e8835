"""One row that somebody changed, of those that are only shown: the others are shown, and who asks for that one is refused by name."""

from __future__ import annotations

import pytest
from sqlalchemy import Connection, text

from orchestrator.api.deps import parts_of
from shared.canonical import sha256
from shared.claims.archive import open_archive
from shared.service.refusals import COUNTED
from tests.orchestrator.orchestrator_samples import key
from tests.orchestrator.orchestrator_world import OWNER, PROGRAM, World, archive, prepared, put, submit

FILE = sha256(bytes(8)).hex()
PARTY, KEY = "parties SET {} WHERE name = 'h0'", "party_keys SET {} WHERE name = 'h0'"
SUMMARY, STORED = f"programs SET {{}} WHERE digest = '{PROGRAM}'", f"files SET {{}} WHERE digest = '{FILE}'"
LISTS = {
    "a role of bytes": (PARTY, "role = x'ff'", "/v1/parties", "/v1/parties/h0"),
    "a role that there is not": (PARTY, "role = 'king'", "/v1/parties", "/v1/parties/h0"),
    "a time of bytes": (PARTY, "enrolled_at = x'ff'", "/v1/parties", "/v1/parties/h0"),
    "a time that is none": (PARTY, "enrolled_at = 'soon'", "/v1/parties", None),
    "a time that never comes": (PARTY, "enrolled_at = 9e999", "/v1/parties", "/v1/parties/h0"),
    "a key's statement": (KEY, "statement = '{'", "/v1/parties/h0/keys", None),
    "a key's beginning": (KEY, "valid_from = x'ff'", "/v1/parties/h0/keys", None),
    "a key's predecessor": (KEY, "previous = x'ff'", "/v1/parties/h0/keys", None),
    "a summary": (SUMMARY, "summary = '{'", "/v1/programs", f"/v1/programs/{PROGRAM}"),
    "a summary that is a number": (SUMMARY, "summary = '7'", "/v1/programs", f"/v1/programs/{PROGRAM}"),
    "a size of bytes": (STORED, "size_bytes = x'ff'", "/v1/weights", f"/v1/weights/{FILE}"),
    "a time of a file": (STORED, "stored_at = x'ff'", "/v1/validation-datasets", f"/v1/validation-datasets/{FILE}"),
}  # fmt: skip


async def damage(world: World, what: str) -> None:
    def act(connection: Connection) -> None:
        connection.execute(text(what))

    await parts_of(world.app).store.write(act)


@pytest.mark.parametrize("which", LISTS)
async def test_the_others_are_shown(world: World, which: str) -> None:
    owner, (row, change, path, one) = await prepared(world), LISTS[which]
    for kind in ("weights", "validation-datasets"):
        for data in (bytes(8), bytes(9)):
            await put(owner, f"/v1/{kind}/{sha256(data).hex()}", data)
    other = archive(description="another")
    await put(owner, f"/v1/programs/{open_archive(other).digest.hex()}/archive", other)
    before = (await owner.get(path)).json()["items"]
    await damage(world, f"UPDATE {row.format(change)}")
    left, page = list[object](), f"{path}?limit=1"
    while page:
        answer = await owner.get(page)
        assert answer.status_code == 200, answer.text
        left += answer.json()["items"]
        page = answer.links["next"]["url"] if "next" in answer.links else ""
    assert (len(left), [item for item in before if item in left]) == (len(before) - 1, left)
    if one is not None:
        refused = await owner.get(one)
        assert (refused.status_code, refused.json()["code"]) == (500, "stored-row-changed"), refused.text
        assert refused.status_code not in COUNTED


CHANNEL = "INSERT INTO channels VALUES ('c', '{0}', 'h0', %s, 1, '00', %s, %s, '{{}}', '', 1.0, 1)"
HEAD = "INSERT INTO tree_heads VALUES ('{0}', 0, %s, 1, %s, '00')"
LEAF = "INSERT INTO log_leaves (session, idx, kind, leaf) VALUES ('{0}', 0, 'event', %s)"
REFUSED = {
    "evidence": (CHANNEL % ("1", "''", "'{{'"), "/keys", (403, "journal-tampered")),
    "runtime data": (CHANNEL % ("1", "x'ff'", "'{{}}'"), "/keys", (403, "journal-tampered")),
    "a life": (CHANNEL % ("x'ff'", "''", "'{{}}'"), "/keys", (403, "journal-tampered")),
    "a signature": (HEAD % ("'00'", "'abc'"), "/log/head", (403, "journal-tampered")),
    "a root": (HEAD % ("x'ff'", "x'00'"), "/log/head", (403, "journal-tampered")),
    "a leaf": (LEAF % "'abc'", "/log/leaves", (500, "log-mismatch")),
    "another leaf": (LEAF % "x'00'", "/log/leaves", (500, "log-mismatch")),
}


@pytest.mark.parametrize("which", REFUSED)
async def test_what_belongs_to_one_session_is_refused_by_name(world: World, which: str) -> None:
    what, path, refusal = REFUSED[which]
    owner = await prepared(world)
    session = (await submit(owner)).json()["id"]
    (await parts_of(world.app).catalogue.open(session)).durable.tree.append(bytes(32))
    await damage(world, what.format(session))
    refused = await owner.get(f"/v1/sessions/{session}{path}")
    assert (refused.status_code, refused.json()["code"]) == refusal, refused.text


async def test_a_place_that_is_none_takes_no_leaf_away(world: World) -> None:
    owner = await prepared(world)
    session = (await submit(owner)).json()["id"]
    values = f"VALUES ('{session}', 'abc', 'receipt', x'00')"
    await damage(world, f"INSERT INTO log_leaves (session, idx, kind, leaf) {values}")
    for path in ("log/leaves", "receipts"):
        answer = await owner.get(f"/v1/sessions/{session}/{path}")
        assert (answer.status_code, answer.json()["items"]) == (200, [])


@pytest.mark.parametrize("change", ["role = 'holdes'", "role = x'ff'", "public_key = 'zz'", "public_key = x'ff'",
                                    f"public_key = '{key(2).public.hex()}'"])  # fmt: skip
async def test_a_party_whose_row_was_changed_is_refused_by_name_and_the_others_are_heard(
    world: World, change: str
) -> None:
    await prepared(world)
    await damage(world, f"UPDATE parties SET {change} WHERE name = 'h0'")
    refused = await world.client(key(1)).get("/v1/whoami")
    assert (refused.status_code, refused.json()["code"]) == (500, "stored-row-changed")
    for other in (key(2), OWNER):
        assert (await world.client(other).get("/v1/whoami")).status_code == 200
