"""What the orchestrator refuses over REST, and that events can be followed from any point."""

from __future__ import annotations

from typing import Any

import httpx2
import pytest
import sqlalchemy

from shared.canonical import sha256
from shared.crypto.signing import PartyKey
from shared.service.middleware import UNASKED_BYTES
from tests.orchestrator.orchestrator_samples import key
from tests.orchestrator.orchestrator_world import BASE, OWNER, World, prepared, put, submit


@pytest.mark.parametrize(
    ("who", "method", "path", "status", "code"),
    [
        (key(50), "GET", "/v1/sessions", 401, "signature-key-unknown"),
        (key(1), "POST", "/v1/parties", 403, "role-missing"),
        (OWNER, "GET", "/v1/inbox", 403, "role-missing"),
        (OWNER, "GET", "/v1/sessions/s_nothingnothing2", 404, "unknown-session"),
        (OWNER, "GET", "/v1/visits/v_nothingnothing2", 404, "unknown-visit"),
        (OWNER, "GET", "/v1/gpus/gpu-9", 404, "unknown-gpu"),
        (OWNER, "GET", "/v1/sessions?after=AAAA", 400, "invalid-cursor"),
    ],
)
async def test_refusals_name_their_code(
    world: World, who: PartyKey, method: str, path: str, status: int, code: str
) -> None:
    await prepared(world)
    body = {"name": "x", "role": "holder", "public_key": "0" * 64} if method == "POST" else None
    answer = await world.client(who).request(method, path, json=body)
    assert (answer.status_code, answer.json()["code"]) == (status, code)


@pytest.mark.parametrize(
    "path", ["sessions/%00", "sessions/s_%00/events", "sessions/%00/approvals", "visits/%00", "visits/v_%ED%A0%80"]
)
async def test_what_nothing_can_be_called_is_unknown_and_no_damage(world: World, path: str) -> None:
    """PostgreSQL takes no NUL in a text; what the caller wrote was held for a damaged row, and rang the alarm."""
    owner = await prepared(world)
    asked = set[str]()

    def noted(_: Any, _cursor: Any, _statement: str, parameters: Any, *_more: Any) -> None:
        asked.update(value for value in parameters if isinstance(value, str))

    sqlalchemy.event.listen(sqlalchemy.engine.Engine, "before_cursor_execute", noted)
    try:
        answer = await owner.get(f"/v1/{path}")
    finally:
        sqlalchemy.event.remove(sqlalchemy.engine.Engine, "before_cursor_execute", noted)
    unknown = "unknown-session" if path.startswith("sessions") else "unknown-visit"
    assert (answer.status_code, answer.json()["code"]) == (404, unknown)
    assert not [value for value in asked if "\0" in value or "\ufffd" in value], "it never reached the database"


async def test_an_unfinished_model_and_anothers_model_are_not_given(world: World) -> None:
    owner = await prepared(world)
    session = (await submit(owner)).json()["id"]
    assert (await owner.get(f"/v1/sessions/{session}/model")).json()["code"] == "model-not-ready"
    assert (await world.client(key(1)).get(f"/v1/sessions/{session}/model")).json()["code"] == "output-policy"


async def test_of_a_session_that_has_ended_nobody_is_told_to_wait(world: World) -> None:
    owner = await prepared(world)
    session = (await submit(owner)).json()["id"]
    for path, code in (("model", "model-not-ready"), ("log/head", "no-head")):
        waiting = (await owner.get(f"/v1/sessions/{session}/{path}")).json()
        assert (waiting["code"], "Wait" in waiting["remedy"]) == (code, True)
    await owner.post(f"/v1/sessions/{session}/cancel")
    for path, code in (("model", "model-not-ready"), ("log/head", "no-head")):
        never = (await owner.get(f"/v1/sessions/{session}/{path}")).json()
        assert (never["code"], "Wait" in never["remedy"], "will come" in never["remedy"]) == (code, False, True)
        assert "CANCELLED" in never["detail"]


async def test_uploads_are_stored_under_their_own_digest_only(world: World) -> None:
    owner, data = await prepared(world), b"records"
    assert (await put(owner, f"/v1/validation-datasets/{sha256(data).hex()}", data)).status_code == 201
    assert (await put(owner, f"/v1/validation-datasets/{sha256(data).hex()}", data)).status_code == 200
    refused = await put(owner, f"/v1/weights/{'0' * 64}", data)
    assert (refused.status_code, refused.json()["code"]) == (403, "digest-mismatch")
    assert (await owner.get("/v1/weights")).json()["items"] == []
    assert list((world.folder / "data" / "uploads").iterdir()) == []


async def test_events_are_replayed_from_any_point_and_end_with_the_session(world: World) -> None:
    owner = await prepared(world)
    session = (await submit(owner)).json()["id"]
    await owner.post(f"/v1/sessions/{session}/cancel")
    text = (await owner.get(f"/v1/sessions/{session}/events")).text
    assert [line for line in text.splitlines() if line.startswith("event:")] == ["event: session"] * 2
    assert '"phase":"CANCELLED"' in text.replace(" ", "")
    later = (await owner.get(f"/v1/sessions/{session}/events", headers={"last-event-id": "1000000"})).text
    assert later.count("event:") == 1


async def test_every_operation_has_an_example(world: World) -> None:
    schema = world.app.openapi()
    for path, operations in schema["paths"].items():
        for method, operation in operations.items():
            if not path.startswith("/v1/"):
                continue
            done = [answer for status, answer in operation["responses"].items() if str(status).startswith("2")]
            assert done, (method, path)
            if "204" in operation["responses"]:  # an answer without a body
                continue
            for answer in done:
                assert all("example" in content for content in answer["content"].values()), (method, path)


async def test_a_long_body_is_refused_before_it_is_read_where_nobody_signed_it(world: World) -> None:
    """Read, it would be refused as no JSON."""
    stranger = httpx2.AsyncClient(transport=httpx2.ASGITransport(world.app), base_url=BASE)
    for length, code in ((10, "invalid-request"), (UNASKED_BYTES + 1, "signature-missing")):
        answer = await stranger.post(
            "/v1/sessions", content=b"[" * length, headers={"content-type": "application/json", "idempotency-key": "k"}
        )
        assert answer.json()["code"] == code
