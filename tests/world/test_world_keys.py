"""Keys that change: a holder's between sessions, by command, and by its owner's word in the middle of one. Old receipts stay proven."""

from __future__ import annotations

import asyncio
from pathlib import Path

from gput.client import UNATTESTED, AsyncClient
from gput.receipts import save, verify
from shared.claims.manifest import Manifest
from shared.crypto.signing import PartyKey
from shared.service.http import Peers
from tests.world.test_world_commands import held
from tests.world.world import NewWorld, World, url
from tests.world.world_hand import ORCH, Hand
from tests.world.world_wire import Link


def client_of(world: World, key: PartyKey) -> AsyncClient:
    peers = Peers(transports={url(ORCH): Link(world.wire, "somebody", ORCH)})
    return AsyncClient(url(ORCH), key, trust=UNATTESTED, peers=peers, clock=world.clock_of("owner"))


def named(manifest: Manifest, holder: str, key: PartyKey) -> Manifest:
    """The same session with another key of one holder."""
    roster = tuple(
        entry.model_copy(update={"key": key.fingerprint}) if entry.holder == holder else entry
        for entry in manifest.roster
    )
    return manifest.model_copy(update={"roster": roster, "name": "with the new key"})


async def test_a_holders_key_is_rotated_between_sessions(hand: Hand, tmp_path: Path) -> None:
    world, identity = hand.world, str(hand.world.folder / "holder-city" / "identity.pem")
    first = await world.submit()
    await world.completed(first)
    await world["holder-city"].stop()
    old = world.key("city")
    code, out, said = await hand("party", "rotate-key", "--key", identity, "--dry-run", "--format", "json")
    assert (code, "would make a new key for city" in said) == (0, True), said
    assert held("party rotate-key --dry-run", out)["key"] == old.fingerprint
    code, out, said = await hand("party", "rotate-key", "--key", identity, "--format", "json")
    assert code == 0, said
    new = PartyKey.load(Path(identity))
    assert held("party rotate-key", out)["key"] == new.fingerprint != old.fingerprint
    assert not list((world.folder / "holder-city").glob("*.next.*"))
    await world["holder-city"].start()
    old_request = await world.operator("city").request(
        first, phase="COMPLETED"
    )  # what it approved under the old key is its word still
    assert (old_request["state"], old_request["decided_by"]) == ("ended", "policy")
    second = await world.owner.submit(named(world.material.manifest(), "city", new))
    await world.completed(second["id"])
    closed = [visit["holder"] for visit in await world.visits(second["id"]) if visit["outcome"] == "closed"]
    assert closed.count("city") == closed.count("north") == 2
    # What was done under the old key is proven as before, and the new one may fetch it.
    for session in (first, second["id"]):
        folder = tmp_path / session
        async with client_of(world, new) as city:
            await save(city, session, folder, world.folder / "trust")
        assert (await asyncio.to_thread(verify, folder)).holders["city"] == 2
    code, out, _ = await hand("party", "keys", "city", "--format", "json")
    before, now = held("party keys", out)
    assert (code, before["key"], now["key"], now["came"]) == (0, old.fingerprint, new.fingerprint, "rotated")
    for session, key in ((first, before), (second["id"], now)):
        said_at = next(
            a["at"] for a in await world.owner.items(f"sessions/{session}/approvals") if a["holder"] == "city"
        )
        assert int(key["valid_from"]) <= said_at <= (key["valid_until"] or said_at)


async def test_a_rotation_that_was_interrupted_is_finished_by_the_same_command(hand: Hand) -> None:
    world, identity = hand.world, world_identity(hand.world)
    await world.enrol()
    old, draft = PartyKey.load(identity), identity.with_suffix(".next.pem")
    PartyKey.generate().save(draft)
    async with client_of(world, old) as city:
        await city.rotate_key(old, PartyKey.load(draft))  # and the command died before it put the file in its place
    code, _, said = await hand("party", "rotate-key", "--key", str(identity))
    assert (code, "was interrupted" in said) == (0, True), said
    async with client_of(world, PartyKey.load(identity)) as city:
        assert (await city.whoami())["name"] == "city"
    assert len(await world.owner.items("parties/city/keys")) == 2
    assert not draft.exists()


def world_identity(world: World) -> Path:
    return world.folder / "holder-city" / "identity.pem"


async def test_a_revoked_holder_is_passed_over_from_then_on(new_world: NewWorld) -> None:
    async with new_world() as world:
        session = await world.submit(quorum=2, rounds=3, lease_s=3)
        await world.until(session, lambda view: view["visits_closed"] >= 2)
        await world.owner.revoke_key("harbour", world.key("harbour").fingerprint)
        mark = len(world.wire.calls("holder-harbour", "agent", "/copy"))
        await world.completed(session)
        assert len(world.wire.calls("holder-harbour", "agent", "/copy")) <= mark + 2, "at most the visit under way"
        closed = [visit["holder"] for visit in await world.visits(session) if visit["outcome"] == "closed"]
        assert closed.count("city") == closed.count("north") == 3
        assert closed.count("harbour") < 3
        assert world.wire.calls("holder-harbour", ORCH)[-1].status == 401
