"""A POST whose answer was lost is repeated under its Idempotency-Key: it gets the first answer, and nothing is done twice."""

from __future__ import annotations

from typing import Any

import httpx2
import pytest

from shared.errors import BadRequest
from shared.service.clock import system_entropy
from shared.service.http import PeerClient, Peers
from shared.service.signatures import SignedAuth
from tests.world.world import NewWorld, World, url
from tests.world.world_wire import Call, Deliver, Link, lose_answer

ORCH = "orchestrator"


def as_party(world: World, name: str) -> PeerClient:
    """Signed calls to the orchestrator with a party's key, on a link of their own."""
    peers = Peers(transports={url(ORCH): Link(world.wire, f"{name}-by-hand", ORCH)}, entropy=system_entropy)
    return peers.peer(url(ORCH), ORCH, auth=SignedAuth(world.key(name), world.clock_of(name), system_entropy))


def losing_once(world: World, part: str) -> list[Call]:
    """The answer to the first POST with `part` in its path is lost; the calls seen."""
    seen: list[Call] = []

    async def lose(call: Call, deliver: Deliver) -> httpx2.Response:
        if call.method != "POST" or part not in call.path:
            return await deliver(call)
        seen.append(call)
        return await (lose_answer(call, deliver) if len(seen) == 1 else deliver(call))

    world.wire.hooks.append(lose)
    return seen


async def facts(world: World, session: str) -> list[str]:
    return [event.data["fact"] async for event in world.owner.events(session) if event.event == "session"]


async def test_a_pause_whose_answer_was_lost_pauses_once(world: World) -> None:
    seen = losing_once(world, "/pause")
    session = await world.submit()
    await world.until(session, lambda view: view["visits_closed"] >= 1)
    await world.owner.act(session, "pause")
    assert len(seen) == 2
    assert len({dict(call.headers)["idempotency-key"] for call in seen}) == 1
    await world.until(session, lambda view: view["phase"] == "PAUSED")
    await world.owner.act(session, "resume")
    # The very same request once more, long after: answered, and not done.
    late = await world.owner._peer.request(
        "POST", f"/v1/sessions/{session}/pause", idempotency_key=dict(seen[0].headers)["idempotency-key"]
    )
    assert (late.status_code, late.headers["idempotent-replayed"]) == (202, "true")
    await world.completed(session)
    assert [(await facts(world, session)).count(word) for word in ("pause_asked", "paused", "resumed")] == [1, 1, 1]


async def test_an_approval_whose_answer_was_lost_is_given_once(new_world: NewWorld) -> None:
    async with new_world(approve="manual", holders=("city",)) as world:
        session = await world.submit()
        operator = world.operator("city")
        shown = await operator.request(session)
        body = {"manifest": shown["manifest"], "dataset": "ehr", "reason": "board agreed"}

        async def post(key: str, **changes: Any) -> httpx2.Response:
            path = f"/v1/requests/{session}/approve"
            return await operator._http.post(path, json={**body, **changes}, headers={"idempotency-key": key})

        losing_once(world, "/approve")
        with pytest.raises(httpx2.ReadError):
            await post("k")
        again, other_body, other_key = await post("k"), await post("k", reason=""), await post("fresh", reason="")
        assert (again.status_code, again.json()["state"], again.headers["idempotent-replayed"]) == (
            200,
            "approved",
            "true",
        )
        assert (other_body.status_code, other_body.json()["code"]) == (422, "idempotency-key-reused")
        assert (other_key.status_code, other_key.json()["code"]) == (409, "already-decided")
        # As if the process had died between the decision and the keeping of its answer.
        found = await post("found")
        assert (found.status_code, found.json()["decided_at"]) == (200, again.json()["decided_at"])
        await world.completed(session)
        assert len(await world.owner.items(f"sessions/{session}/approvals")) == 1


async def test_a_channel_asked_for_twice_under_one_key_is_one_channel(new_world: NewWorld) -> None:
    async with new_world(holders=("city",)) as world:
        # The orchestrator takes the holder to be at it, and asks it again only after a lease.
        session = await world.submit(lease_s=2)
        await world.until(session, lambda view: view["holders"][0]["channel"])
        city, path = as_party(world, "city"), f"/v1/sessions/{session}/channels"
        first = await city.post_json(path, {"nonce": "ab" * 32}, idempotency_key="k")
        assert await city.post_json(path, {"nonce": "ab" * 32}, idempotency_key="k") == first
        assert (await city.post_json(path, {"nonce": "ab" * 32}))["channel"] != first["channel"]
        with pytest.raises(BadRequest) as reused:
            await city.post_json(path, {"nonce": "cd" * 32}, idempotency_key="k")
        assert reused.value.code == "idempotency-key-reused"
        await world.completed(session)
