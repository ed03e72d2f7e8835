"""An enrolled key changes by its party's word, or its owner's, and never in mid-session; what counted when is told to everybody."""

from __future__ import annotations

from typing import Any

import httpx2
import pytest
from sqlalchemy import update

from orchestrator.tables import PARTY_KEYS, SESSION_KEYS, SESSIONS
from shared.attestation.key_rotations import sign_rotation
from shared.crypto.signing import PartyKey
from tests.adversary.rows import attack
from tests.orchestrator.orchestrator_samples import key
from tests.orchestrator.orchestrator_world import OWNER, World, prepared, submit

OLD, NEW, OTHER = key(1), key(41), key(42)


def rotation(party: str = "h0", old: PartyKey = OLD, new: PartyKey = NEW, at: int = 5) -> dict[str, str]:
    return sign_rotation(party, old, new, at).model_dump(mode="json")


async def rotate(world: World, by: PartyKey = OLD, body: Any = None, name: str = "h0") -> httpx2.Response:
    return await world.client(by).put(f"/v1/parties/{name}/key", json=rotation() if body is None else body)


async def told(answer: httpx2.Response) -> tuple[int, str]:
    return answer.status_code, answer.json().get("code", "")


async def ended(owner: httpx2.AsyncClient) -> str:
    """A session that named h0 and is over."""
    session = str((await submit(owner)).json()["id"])
    assert (await owner.post(f"/v1/sessions/{session}/cancel")).status_code == 202
    return session


async def test_the_new_key_counts_at_once_and_the_old_one_no_more(world: World) -> None:
    owner = await prepared(world)
    session = await ended(owner)
    path = f"/v1/sessions/{session}"
    assert (await world.client(OLD).get(path)).status_code == 200  # it is remembered from here on
    assert (await rotate(world)).json()["key"] == NEW.fingerprint
    assert await told(await world.client(OLD).get(path)) == (401, "signature-key-unknown")
    assert (await world.client(NEW).get("/v1/whoami")).json()["name"] == "h0"
    assert (await world.client(NEW).get(path)).json()["id"] == session  # what the old key could see, the new one can
    again = await rotate(world, by=NEW)  # its first answer was lost
    assert (again.status_code, again.json()["key"]) == (200, NEW.fingerprint)
    first, second = (await owner.get("/v1/parties/h0/keys")).json()["items"]
    assert (first["key"], first["came"], first["came_by"], first["ended_by"]) == (
        OLD.fingerprint,
        "enrolled",
        "alice",
        "h0",
    )
    assert (second["came"], second["previous"], second["valid_until"]) == ("rotated", OLD.fingerprint, None)
    assert first["valid_from"] <= first["valid_until"] <= second["valid_from"]
    assert second["statement"] == rotation()


async def test_a_new_session_names_the_new_key(world: World) -> None:
    owner = await prepared(world)
    assert (await rotate(world)).status_code == 200
    refused = await submit(owner)
    assert (refused.status_code, refused.json()["code"]) == (422, "key-mismatch")
    assert [error["field"] for error in refused.json()["errors"]] == ["roster.0.key"]


async def test_nothing_changes_in_mid_session(world: World) -> None:
    owner = await prepared(world)
    session = (await submit(owner)).json()["id"]
    assert await told(await rotate(world)) == (409, "key-in-use")
    lost = {"public_key": NEW.public.hex(), "replaces": OLD.fingerprint}
    refused = await owner.put("/v1/parties/h0/replacement", json=lost)
    assert await told(refused) == (409, "key-in-use")
    assert session in refused.json()["detail"]
    # What must not wait does not: the key is refused, the session stands as it stood.
    assert (await owner.put("/v1/parties/h0/revocation", json={"key": OLD.fingerprint})).status_code == 200
    assert await told(await world.client(OLD).get("/v1/inbox?wait=0")) == (401, "signature-key-unknown")
    assert (await owner.get(f"/v1/sessions/{session}")).json()["phase"] == "AWAITING_APPROVAL"
    await owner.post(f"/v1/sessions/{session}/cancel")
    assert (await owner.put("/v1/parties/h0/replacement", json=lost)).json()["key"] == NEW.fingerprint


@attack("H18", any="stopped: only the enrolled key gives its name away, and only to a key that signed as well")
@pytest.mark.parametrize(
    ("by", "name", "body", "status", "code"),
    [
        (key(2), "h0", rotation(old=key(2)), 403, "not-your-key"),
        (OLD, "h0", rotation(old=OTHER), 403, "bad-signature"),
        (OLD, "h0", rotation(party="h1"), 403, "rotation-mismatch"),
        (OLD, "h0", {**rotation(), "new_signature": rotation(new=OTHER)["new_signature"]}, 403, "bad-signature"),
        (OLD, "h0", rotation(new=key(2)), 409, "key-was-used"),
        (OLD, "h0", rotation(new=OLD), 400, "malformed-rotation"),
        (OWNER, "h0", rotation(), 403, "role-missing"),
        (OLD, "h9", rotation(party="h9"), 404, "unknown-party"),
    ],
)
async def test_nobody_takes_anothers_name(
    world: World, by: PartyKey, name: str, body: dict[str, str], status: int, code: str
) -> None:
    owner = await prepared(world)
    assert await told(await rotate(world, by, body, name)) == (status, code)
    assert (await owner.get("/v1/parties/h0")).json()["key"] == OLD.fingerprint
    assert len((await owner.get("/v1/parties/h0/keys")).json()["items"]) == 1


@attack("H18", any="stopped: a key that came without the old one's signature gets nothing of the sessions before it")
async def test_a_key_that_an_owner_put_in_place_sees_nothing_of_before(world: World) -> None:
    owner = await prepared(world)
    session = await ended(owner)
    assert (await rotate(world)).status_code == 200
    lost = {"public_key": OTHER.public.hex(), "replaces": NEW.fingerprint}
    assert (await owner.put("/v1/parties/h0/replacement", json=lost)).status_code == 200
    assert (await owner.put("/v1/parties/h0/replacement", json=lost)).status_code == 200  # said again
    stranger = world.client(OTHER)
    assert (await stranger.get("/v1/whoami")).json()["name"] == "h0"
    for path in ("", "/model", "/losses", "/receipts"):
        assert await told(await stranger.get(f"/v1/sessions/{session}{path}")) == (403, "key-replaced")
    third = (await owner.get("/v1/parties/h0/keys")).json()["items"][2]
    assert (third["came"], third["came_by"], third["statement"]) == ("replaced", "alice", None)
    # Neither does one that the stranger's key gave its name to.
    assert (await rotate(world, OTHER, rotation(old=OTHER, new=key(43)))).status_code == 200
    assert await told(await world.client(key(43)).get(f"/v1/sessions/{session}")) == (403, "key-replaced")


@attack("H18", any="stopped: of the sessions before it such a key hears that they have ended, and no more")
async def test_a_key_that_an_owner_put_in_place_is_told_of_nothing_before(world: World) -> None:
    owner = await prepared(world)
    session, parts = await ended(owner), world.app.state.orchestrator
    assert (await world.client(OLD).get("/v1/inbox?after=0")).json()["items"][0]["kind"] == "ended"
    parts.house.inboxes.post("h0", kind="approval_wanted", session=session, manifest="b2xk")
    begun = parts.house.inboxes._box("h0").floor
    lost = {"public_key": OTHER.public.hex(), "replaces": OLD.fingerprint}
    assert (await owner.put("/v1/parties/h0/replacement", json=lost)).status_code == 200
    stranger = world.client(OTHER)
    assert (await stranger.get("/v1/sessions")).json()["items"] == []
    assert [item["id"] for item in (await world.client(key(2)).get("/v1/sessions")).json()["items"]] == [session]
    for after in (0, begun):
        items = (await stranger.get(f"/v1/inbox?after={after}")).json()["items"]
        assert [(item["kind"], item["manifest"]) for item in items] == [("ended", None)]
    await store_another_key(world, session)
    assert await told(await stranger.get(f"/v1/sessions/{session}")) == (403, "key-replaced")
    assert (await world.client(key(2)).get(f"/v1/sessions/{session}")).json()["phase"] == "CANCELLED"


async def store_another_key(world: World, session: str) -> None:
    """The session's key is of another CVM: what is shown of it comes from the rows."""
    parts = world.app.state.orchestrator
    await parts.store.write(lambda c: c.execute(update(SESSION_KEYS).values(sealed=bytes(64))))
    parts.catalogue.forget(session)


async def test_a_listing_is_not_stopped_by_a_manifest_that_was_tampered_with(world: World) -> None:
    owner = await prepared(world)
    await ended(owner)
    store = world.app.state.orchestrator.store
    await store.write(lambda c: c.execute(update(SESSIONS).values(manifest=b"{}")))
    for who, shown in ((owner, 1), (world.client(OLD), 0)):
        answer = await who.get("/v1/sessions")
        assert (answer.status_code, len(answer.json()["items"])) == (200, shown)


async def test_a_row_that_was_made_up_proves_nothing(world: World) -> None:
    owner = await prepared(world)
    session = await ended(owner)
    lost = {"public_key": OTHER.public.hex(), "replaces": OLD.fingerprint}
    assert (await owner.put("/v1/parties/h0/replacement", json=lost)).status_code == 200
    store = world.app.state.orchestrator.store
    forged = {"came": "rotated", "statement": rotation(old=OTHER, new=OTHER)}
    where = PARTY_KEYS.c.fingerprint == OTHER.fingerprint
    await store.write(lambda c: c.execute(update(PARTY_KEYS).where(where).values(forged)))
    assert await told(await world.client(OTHER).get(f"/v1/sessions/{session}")) == (403, "key-replaced")


async def test_an_owner_replaces_only_what_it_has_seen(world: World) -> None:
    owner = await prepared(world)
    stale = {"public_key": NEW.public.hex(), "replaces": OTHER.fingerprint}
    assert await told(await owner.put("/v1/parties/h0/replacement", json=stale)) == (409, "key-mismatch")
    assert await told(await owner.put("/v1/parties/h0/revocation", json={"key": NEW.fingerprint})) == (
        409,
        "key-mismatch",
    )
    used = {"public_key": key(2).public.hex(), "replaces": OLD.fingerprint}
    assert await told(await owner.put("/v1/parties/h0/replacement", json=used)) == (409, "key-was-used")
    by_holder = await world.client(key(2)).put("/v1/parties/h0/revocation", json={"key": OLD.fingerprint})
    assert await told(by_holder) == (403, "role-missing")


async def test_a_key_that_was_somebodys_is_never_enrolled_again(world: World) -> None:
    owner = await prepared(world)
    assert (await rotate(world)).status_code == 200
    for name, public in (("h9", OLD.public), ("h0", OLD.public), ("h0", OTHER.public)):
        body = {"name": name, "role": "holder", "public_key": public.hex()}
        assert await told(await owner.post("/v1/parties", json=body)) == (409, "party-exists"), name
    await owner.put("/v1/parties/h0/revocation", json={"key": NEW.fingerprint})
    body = {"name": "h0", "role": "holder", "public_key": NEW.public.hex()}
    assert await told(await owner.post("/v1/parties", json=body)) == (409, "party-exists")  # revoked is not enrolled
    revoked = (await owner.get("/v1/parties/h0")).json()
    assert revoked["key_valid_until"] >= revoked["key_valid_from"]


async def test_a_key_under_which_anything_verifies_is_nobodys(world: World) -> None:
    """Neutral, and of order 8: whoever had one enrolled could deny all that it approved."""
    owner = await prepared(world)
    for public in ("01" + "00" * 31, "26e8958fc2b227b045c3f489f2ef98f0d5dfac05d3c63339b13802886d53fc05"):
        new = {"name": "x1", "role": "holder", "public_key": public}
        assert await told(await owner.post("/v1/parties", json=new)) == (400, "bad-public-key")
        assert (await owner.get("/v1/parties/x1")).status_code == 404
        lost = {"public_key": public, "replaces": OLD.fingerprint}
        assert await told(await owner.put("/v1/parties/h0/replacement", json=lost)) == (400, "bad-public-key")
    assert (await owner.get("/v1/parties/h0")).json()["key"] == OLD.fingerprint


async def test_an_owners_key_counts_as_long_as_its_file_is_there(world: World) -> None:
    await prepared(world)
    folder = (world.folder / "owners").resolve()
    (world.folder / "owners").unlink()
    (world.folder / "owners").mkdir()
    await _is(world, OWNER, 401)
    mine = world.folder / "owners" / "alice.pub"
    mine.write_bytes(OTHER.public_pem)
    await _is(world, OTHER, 200)
    mine.write_bytes((folder / "alice.pub").read_bytes())
    await _is(world, OTHER, 401)
    await _is(world, OWNER, 200)
    mine.write_text("no key")
    await _is(world, OWNER, 401)


async def _is(world: World, who: PartyKey, status: int) -> None:
    assert (await world.client(who).get("/v1/whoami")).status_code == status
