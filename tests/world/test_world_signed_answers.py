"""A trusting client and real services, with somebody on the wire who passes the proof on; restarts, and an identity that changed."""

from __future__ import annotations

import json

import httpx2
import pytest

from gput import UNATTESTED
from gput.trust import KNOWN
from shared.crypto.signing import PartyKey
from shared.errors import NotFound, VerificationFailed
from tests.adversary.rows import attack
from tests.world.test_world_client import ORCH, asked, client_of, trusting
from tests.world.world import World
from tests.world.world_wire import Call, Deliver

ATTACKER = PartyKey.generate()


async def forging(call: Call, deliver: Deliver) -> httpx2.Response:
    """Ends TLS: passes everything on, the proof too, and puts its own key in the place of each holder's."""
    answer = await deliver(call)
    if call.path != "/v1/parties" or call.client != "owner":
        return answer
    rows = [{**row, "public_key": ATTACKER.public.hex(), "key": ATTACKER.fingerprint} for row in answer.json()["items"]]
    headers = {name: value for name, value in answer.headers.items() if name != "content-length"}
    return httpx2.Response(200, headers=headers, content=json.dumps({"items": rows, "next": None}).encode())


@attack("O04", any="stopped: a client with a trust folder believes no answer that the attested identity did not sign")
async def test_forged_rows_are_refused_by_who_was_told_whom_to_believe(world: World) -> None:
    await world.enrol()
    world.wire.hooks.append(forging)
    async with client_of(world, UNATTESTED) as credulous:
        assert {party.key for party in await credulous.parties.list()} == {ATTACKER.fingerprint}, "the attack works"
    async with client_of(world, trusting(world)) as client:
        assert (await client.parties.me()).name == "owner"
        with pytest.raises(VerificationFailed) as found:
            await client.parties.list()
        assert found.value.code == "answer-signature"
        world.wire.hooks.clear()
        assert {party.key for party in await client.parties.list()} == {
            world.key(name).fingerprint for name in world.holders
        }


async def test_after_a_restart_nothing_is_asked_again_unless_its_identity_changed(world: World) -> None:
    (world.folder / "trust" / KNOWN).unlink()  # of measured code, any is believed
    async with client_of(world, trusting(world)) as client:
        before = asked(world).count("/v1/attestation")
        with pytest.raises(NotFound):
            await client.sessions.show("s_zzz")
        first = await client.attest()
        for changes, proofs in ((False, 2), (True, 3)):
            await world[ORCH].stop()
            if changes:
                for name in ("identity.pem", "identity.pub"):
                    (world.folder / ORCH / name).unlink()
            await world[ORCH].start()
            assert (await client.parties.me()).name == "owner"
            assert asked(world).count("/v1/attestation") - before == proofs
        assert (await client.attest()).identity_key != first.identity_key
