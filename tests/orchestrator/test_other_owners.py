"""An orchestrator with two owners: each steers its own sessions, and is shown the losses of no other's."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
from sqlalchemy import insert

from orchestrator.api import events
from orchestrator.api.deps import parts_of, sees_losses
from orchestrator.tables import LOSSES, VISITS
from shared.names import Role
from shared.service.app import service_state
from shared.service.signatures import Caller
from tests.orchestrator.orchestrator_world import BOB, OWNER, World, prepared, submit


@pytest.fixture
def world(two_owners: World) -> World:
    return two_owners


async def test_only_its_own_owner_steers_a_session(world: World) -> None:
    owner, other = await prepared(world), world.client(BOB)
    session = (await submit(owner)).json()["id"]
    before = (await owner.get(f"/v1/sessions/{session}")).json()
    for verb in ("pause", "resume", "cancel"):
        refused = await other.post(f"/v1/sessions/{session}/{verb}")
        assert (refused.status_code, refused.json()["code"]) == (403, "not-the-owner")
    assert (await other.get(f"/v1/sessions/{session}")).json()["phase"] == before["phase"]
    assert (await owner.post(f"/v1/sessions/{session}/cancel")).status_code == 202


async def test_losses_are_shown_to_no_other_owner(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    owner, other = await prepared(world), world.client(BOB)
    session = (await submit(owner)).json()["id"]
    store = service_state(world.app).store
    assert store is not None
    data = {"mean_loss": 1.5}
    visit = {"id": f"v_{1:016}", "session": session, "number": 1, "holder": "h0", "phase": "CLOSED", "data": data}
    loss = {"session": session, "visit": visit["id"], "step": 0, "holder": "h0", "loss": 1.5}
    await store.write(lambda c: (c.execute(insert(VISITS), [visit]), c.execute(insert(LOSSES), [loss])))
    parts, shown = parts_of(world.app), {}
    live = SimpleNamespace(run=SimpleNamespace(losses=[(1, 1, {"holder": "h0", "loss": 1.5})]))
    monkeypatch.setattr(parts.supervisor, "runner", lambda _session: live)
    book = await parts.catalogue.open(session)
    for name, party, client in (("alice", OWNER, owner), ("bob", BOB, other)):
        losses = (await client.get(f"/v1/sessions/{session}/losses")).json()["items"]
        [listed] = (await client.get(f"/v1/sessions/{session}/visits")).json()["items"]
        one = (await client.get(f"/v1/visits/{visit['id']}")).json()
        caller = Caller(party.fingerprint, name, frozenset({Role.OWNER}))
        coming = events._Source(parts, caller, book)._losses(0, book.durable.seq)
        shown[name] = (
            [row["loss"] for row in losses],
            listed["mean_loss"],
            listed["losses"],
            one["losses"],
            len(coming),
        )
    assert shown == {"alice": ([1.5], 1.5, [1.5], [1.5], 1), "bob": ([], None, None, None, 0)}


def test_a_reader_token_with_an_owners_eyes_sees_every_owners_losses() -> None:
    eyes = Caller("", "dashboard", frozenset({Role.AUDITOR, Role.OWNER}))
    assert sees_losses(eyes, "alice", "h0")
    assert not sees_losses(Caller("", "dashboard", frozenset({Role.AUDITOR})), "alice", "h0")
