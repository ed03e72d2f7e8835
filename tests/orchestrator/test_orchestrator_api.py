"""The orchestrator's REST surface over a real store, with real signatures, without a GPU agent: what needs no GPU must work without one."""

from __future__ import annotations

import asyncio
import base64
from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx2
from sqlalchemy import delete

from shared.attestation.head_statements import sign_head_statement
from shared.attestation.owners import verify_owner
from shared.protocol.merkle import EMPTY_ROOT
from shared.service.tables import IDEMPOTENT_REPLIES, JOURNAL
from tests.orchestrator.orchestrator_samples import approval, key, manifest
from tests.orchestrator.orchestrator_world import OWNER, PROGRAM, World, opened, prepared, submit


async def say_head(world: World, by: int, about: str, **changes: Any) -> httpx2.Response:
    """A holder that has seen nothing yet answers the head_wanted of its inbox."""
    client = world.client(key(by + 1))
    items = (await client.get("/v1/inbox?after=0&wait=1")).json()["items"]
    challenge = next(item["challenge"] for item in items if item["kind"] == "head_wanted")
    said = {
        "session": about,
        "holder": f"h{by}",
        "challenge": challenge,
        "size": 0,
        "root": EMPTY_ROOT,
        "receipt": None,
    }
    return await client.post(
        f"/v1/sessions/{about}/heads", json=sign_head_statement(key(by + 1), **{**said, **changes}).model_dump()
    )


async def until(owner: httpx2.AsyncClient, session: str, holds: Callable[[dict[str, Any]], bool]) -> None:
    """Follow the session by its long-poll until something holds."""
    async with asyncio.timeout(60):
        version = 0
        while True:
            view = (await owner.get(f"/v1/sessions/{session}?wait=1&version={version}")).json()
            if holds(view):
                return
            version = view["version"]


async def test_a_session_is_submitted_once_and_shown_to_those_it_concerns(world: World) -> None:
    owner = await prepared(world)
    first, again = await submit(owner), await submit(owner)
    assert (first.status_code, first.json()["phase"]) == (201, "AWAITING_APPROVAL")
    assert again.json()["id"] == first.json()["id"]
    assert first.headers["location"] == f"/v1/sessions/{first.json()['id']}"
    assert first.json()["waiting_for"] == [f"h{i} (approval)" for i in range(3)]
    assert len((await owner.get("/v1/sessions")).json()["items"]) == 1
    holder = world.client(key(1))
    assert (await holder.get(f"/v1/sessions/{first.json()['id']}/manifest")).json()["document"]
    inbox = (await holder.get("/v1/inbox?after=0&wait=1")).json()
    assert [item["kind"] for item in inbox["items"]] == ["approval_wanted"]
    assert not [name for item in inbox["items"] for name in item if name.startswith("owner")], (
        "as holders of before know it"
    )
    [item] = (await holder.get("/v1/inbox?after=0&wait=1&owners=true")).json()["items"]
    document, signature = (base64.b64decode(item[name]) for name in ("manifest", "owner_signature"))
    assert verify_owner(document, bytes.fromhex(item["owner_key"]), signature).key == OWNER.public


async def test_a_key_names_its_session_when_its_answer_is_kept_no_more(world: World) -> None:
    owner = await prepared(world)
    first = await submit(owner)
    store = world.app.state.orchestrator.store
    await store.write(lambda connection: connection.execute(delete(IDEMPOTENT_REPLIES)))
    other = await submit(owner, name="another study")
    assert (other.status_code, other.json()["code"]) == (422, "idempotency-key-reused")
    again = await submit(owner)
    assert (again.status_code, again.json()["id"]) == (201, first.json()["id"])


async def test_nobody_is_asked_to_approve_a_session_that_has_ended(world: World) -> None:
    """Its owner said it once more, after its first answer was kept no more."""
    owner, holder = await prepared(world), world.client(key(1))
    session = (await submit(owner)).json()["id"]
    await owner.post(f"/v1/sessions/{session}/cancel")
    heard = (await holder.get("/v1/inbox?after=0&wait=0")).json()["items"]
    assert {item["kind"] for item in heard} == {"ended"}
    store = world.app.state.orchestrator.store
    await store.write(lambda connection: connection.execute(delete(IDEMPOTENT_REPLIES)))
    again = await submit(owner)
    assert (again.status_code, again.json()["phase"]) == (201, "CANCELLED")
    assert not (await holder.get(f"/v1/inbox?after={heard[-1]['seq']}&wait=0")).json()["items"]


async def test_a_wrong_manifest_names_every_field(world: World) -> None:
    owner = await prepared(world)
    refusal = await submit(owner, steps_per_visit=10_000)
    assert (refusal.status_code, refusal.json()["code"]) == (422, "buffer-too-small")
    assert [error["field"] for error in refusal.json()["errors"]] == ["buffer_bytes"] * 3
    assert (await owner.get("/v1/sessions")).json()["items"] == []


async def test_approvals_make_it_ready_and_an_absent_gpu_is_waited_for_by_name(world: World) -> None:
    owner = await prepared(world)
    session = (await submit(owner)).json()["id"]
    agreed = manifest(program=PROGRAM)
    for i in range(3):
        said = approval(i, agreed, session=session).model_dump()
        assert (await world.client(key(i + 1)).post(f"/v1/sessions/{session}/approvals", json=said)).status_code == 201
        assert (await world.client(key(i + 1)).post(f"/v1/sessions/{session}/approvals", json=said)).status_code == 200
    forged = approval(1, agreed, session=session).model_dump()
    refused = await world.client(key(1)).post(f"/v1/sessions/{session}/approvals", json=forged)
    assert refused.status_code == 403
    await until(owner, session, lambda view: view["waiting_for"] == [f"head of holder h{i}" for i in range(3)])
    for i in range(3):
        assert (await say_head(world, i, session)).status_code == 202
    await until(owner, session, lambda view: any("peer" in who for who in view["waiting_for"]))
    assert (await owner.post(f"/v1/sessions/{session}/cancel")).status_code == 202
    await until(owner, session, lambda view: view["phase"] == "CANCELLED")


async def test_a_head_statement_is_heard_from_its_holder_about_this_start_only(world: World) -> None:
    owner = await prepared(world)
    session = (await submit(owner)).json()["id"]
    said = sign_head_statement(
        key(1), session=session, holder="h0", challenge="c1" * 32, size=0, root=EMPTY_ROOT, receipt=None
    )
    early = await world.client(key(1)).post(f"/v1/sessions/{session}/heads", json=said.model_dump())
    assert (early.status_code, early.json()["code"]) == (409, "head-not-wanted")
    for i in range(3):
        word = approval(i, manifest(program=PROGRAM), session=session).model_dump()
        assert (await world.client(key(i + 1)).post(f"/v1/sessions/{session}/approvals", json=word)).status_code == 201
    await until(owner, session, lambda view: view["waiting_for"] == [f"head of holder h{i}" for i in range(3)])
    for changes, code in (
        ({"challenge": "c1" * 32}, "head-challenge"), ({"session": "s_bbbbbbbbbbbbbbbb"}, "head-session"),
        ({"holder": "h1"}, "head-holder"),
    ):  # fmt: skip
        refused = await say_head(world, 0, session, **changes)
        assert (refused.status_code, refused.json()["code"]) == (403, code)
    assert (await owner.post(f"/v1/sessions/{session}/heads", json=said.model_dump())).status_code == 403
    assert (await say_head(world, 0, session, size=1)).status_code == 202
    await until(owner, session, lambda view: view["phase"] == "FAILED")
    failure = (await owner.get(f"/v1/sessions/{session}")).json()["failure"]
    assert failure["code"] == "log-rolled-back"
    assert EMPTY_ROOT.hex() in failure["detail"]
    assert "put back" in failure["remedy"]


async def test_one_approval_that_arrives_twice_at_once_is_entered_once(world: World) -> None:
    owner = await prepared(world)
    session = (await submit(owner)).json()["id"]
    said = approval(0, manifest(program=PROGRAM), session=session).model_dump()
    path = f"/v1/sessions/{session}/approvals"
    answers = await asyncio.gather(*(world.client(key(1)).post(path, json=said) for _ in range(5)))
    assert sorted(answer.status_code for answer in answers) == [200, 200, 200, 200, 201]
    assert len((await owner.get(path)).json()["items"]) == 1


async def test_a_restart_finds_everything_again(installation: Path, tmp_path: Path) -> None:
    for name in ("trust", "owners"):
        (tmp_path / name).symlink_to(installation / name)
    async with opened(tmp_path) as world:
        session = (await submit(await prepared(world))).json()["id"]
    async with opened(tmp_path) as world:
        assert (await world.client(OWNER).get(f"/v1/sessions/{session}")).json()["phase"] == "AWAITING_APPROVAL"
        assert (await submit(world.client(OWNER))).json()["id"] == session


async def test_the_pool_is_shown_though_a_leased_sessions_journal_is_gone(world: World) -> None:
    owner = await prepared(world)
    session, parts = (await submit(owner)).json()["id"], world.app.state.orchestrator
    parts.supervisor._leases["gpu-0"] = session
    await parts.house.store.write(lambda connection: connection.execute(delete(JOURNAL)))
    parts.catalogue._books.clear()
    assert (await owner.get(f"/v1/sessions/{session}")).json()["code"] == "journal-tampered"
    shown = await owner.get("/v1/gpus")
    assert (shown.status_code, [(gpu["leased_to"], gpu["backend"]) for gpu in shown.json()["items"]]) == (
        200,
        [(session, None)],
    )
    await parts.supervisor.look()
    assert (await owner.get("/v1/gpus/gpu-0")).json()["leased_to"] is None, "others may have it"
