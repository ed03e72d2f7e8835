"""Holders whose keys changed between predecessor and successor: by their own rotation they stay, by an owner's word they are others."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any, cast
from unittest.mock import patch

import pytest

import data_holder.succession
import orchestrator.sessions.heritage as heritage
from data_holder.links import OrchestratorLink
from gput import AsyncClient
from gput.succession import successor_of
from gput.trust import UNATTESTED
from shared.claims.manifest import Predecessor
from shared.crypto.signing import PartyKey, fingerprint
from shared.errors import InvalidManifest, VerificationFailed
from shared.service.http import Peers
from tests.successors.successor_world import CAME, FIRST, LEFT, NewWorld, Rested, SuccessorWorld
from tests.world.world import url
from tests.world.world_hand import Hand, at_hand
from tests.world.world_wire import Link


def identity(world: SuccessorWorld, holder: str) -> Path:
    return world.folder / f"holder-{holder}" / "identity.pem"


async def agreed_with_all(world: SuccessorWorld) -> str:
    """A session that may be gone on with by everybody only, sealed and ended after its first round."""
    session = await world.begun(continuation=None)
    await world.until(session, lambda view: view["visits_closed"] >= len(FIRST))
    await world.owner.act(session, "pause")
    await world.until(session, lambda view: view["phase"] == "PAUSED")
    await world.owner.act(session, "cancel")
    await world.finish(session)
    return session


async def rotate(hand: Hand, holder: str) -> tuple[str, str]:
    """Fingerprints before and after, of a holder that changed its key by its own command."""
    world, file = hand.world, identity(hand.world, holder)
    old = PartyKey.load(file).fingerprint
    await world[f"holder-{holder}"].stop()
    code, _, said = await hand("party", "rotate-key", "--key", str(file))
    assert code == 0, said
    await world[f"holder-{holder}"].start()
    return old, PartyKey.load(file).fingerprint


async def test_a_later_key_of_the_owners_name_gets_no_model_by_a_successor(again: NewWorld, rested: Rested) -> None:
    """The model of a session is for the key that signed its manifest. A successor's would be for the later one, and nobody whose records
    are in it would have been asked: its roster may be newcomers alone."""
    async with again() as world:
        later = PartyKey.generate(os.urandom)
        (world.folder / "owners" / "owner.pub").write_bytes(later.public_pem)
        await world["orchestrator"].restart()
        at = url("orchestrator")
        peers = Peers(transports={at: Link(world.wire, "later", "orchestrator")})
        client = AsyncClient(at, later, trust=UNATTESTED, clock=world.clock_of("owner"), peers=peers)
        keys = {one["name"]: one["key"] for one in await client.items("parties")}
        rest = Predecessor.model_validate(await client.get(f"sessions/{rested.session}/continuation"))
        gone = [name for name in FIRST if name != LEFT]
        with pytest.raises(VerificationFailed) as unsigned:  # its client knows that it would be refused
            await client.successor(rested.session, replace={LEFT: CAME}, remove=gone, rounds=1)
        old = await client.manifest(rested.session)
        manifest = successor_of(old, rest, keys, replace={LEFT: CAME}, remove=gone, rounds=1)
        with pytest.raises(InvalidManifest) as refused:
            await client.submit(manifest)
    assert unsigned.value.code == "bad-signature"
    assert "predecessor-not-yours" in str(refused.value.errors)


async def replace(world: SuccessorWorld, holder: str) -> None:
    """The owner's word that the holder has another key: its service runs with that one from then on."""
    await world[f"holder-{holder}"].stop()
    new = PartyKey.generate()
    await world.owner.replace_key(holder, new.public, fingerprint(world.key(holder).public))
    identity(world, holder).unlink()
    new.save(identity(world, holder))
    await world[f"holder-{holder}"].start()


async def test_who_rotated_its_key_goes_on_by_one_command(
    new_world: NewWorld, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nobody agreed to going on without some, and nobody is gone: client, orchestrator and holders see that from the signatures.
    However many keys a holder had, the others read them all."""
    monkeypatch.setattr(data_holder.succession, "PAGE", 1)
    async with new_world() as world:
        hand = at_hand(world, tmp_path, capsys, monkeypatch)
        session = await agreed_with_all(world)
        rotated = [await rotate(hand, "city") for _ in range(2)]
        wanted = tmp_path / "next.json"
        write = ("session", "succeed", session, "--rounds", "1", "-o", str(wanted))
        code, out, err = await hand(*write, "--submit", "--format", "json")
        assert code == 0, err
        assert "without" not in err
        assert "for the first time" not in err
        manifest = json.loads(wanted.read_text())
        assert manifest.get("continuation") is None
        keys = {entry["holder"]: entry["key"] for entry in manifest["roster"]}
        was = {one["holder"]: one["key"] for one in manifest["predecessor"]["contributors"]}
        assert (was["city"], keys["city"]) == (rotated[0][0], rotated[1][1])
        after = json.loads(out)["id"]
        await world.completed(after)
        closed = [visit["holder"] for visit in await world.visits(after) if visit["outcome"] == "closed"]
        assert set(closed) == set(FIRST)


async def test_whose_key_was_replaced_is_gone_for_client_orchestrator_and_holders(new_world: NewWorld) -> None:
    async with new_world() as world:
        session = await agreed_with_all(world)
        await replace(world, "city")
        with pytest.raises(InvalidManifest) as caught:
            await world.owner.successor(session)
        assert (caught.value.code, "city" in caught.value.detail) == ("continuation-refused", True)
        # Written all the same, by an owner that calls it a rotation:
        keys = {one["name"]: one["key"] for one in await world.owner.items("parties")}
        old, rest = await world.owner.manifest(session), await world.rest(session)
        forged = successor_of(old, rest, keys, moved={"city"})
        with pytest.raises(InvalidManifest) as caught:
            await world.owner.submit(forged)
        assert caught.value.code == "continuation-refused"
        with patch.object(heritage, "succession_findings", lambda *documents: []):
            after = str((await world.owner.submit(forged))["id"])
        assert "continuation-refused" in await world.refusal("north", after)
        assert (await world.owner.session(after))["phase"] == "AWAITING_APPROVAL"


async def test_another_party_under_an_old_name_is_not_who_left(
    again: NewWorld, rested: Rested, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    async with again() as world:
        hand = at_hand(world, tmp_path, capsys, monkeypatch)
        await replace(world, LEFT)
        code, _, err = await hand("session", "succeed", rested.session, "-o", str(tmp_path / "next.json"))
        assert code == 0, err
        assert f"without {LEFT}, which agreed" in err
        assert f"{LEFT} for the first time" in err
        assert CAME not in err


async def test_a_list_of_keys_without_an_end_is_given_up() -> None:
    class Endless:
        asked = 0

        async def get_json(self, path: str, params: dict[str, Any]) -> Any:
            Endless.asked += 1
            return {"items": [{"key": "00"}], "next": f"after{self.asked}"}

    nothing = cast(Any, None)
    link = cast(OrchestratorLink, Endless())
    with pytest.raises(VerificationFailed, match="no end") as refused:
        await data_holder.succession.Predecessors("north", nothing, nothing, nothing, link)._keys_of("city")
    assert (refused.value.code, Endless.asked) == ("predecessor-mismatch", data_holder.succession.MAX_PAGES)
