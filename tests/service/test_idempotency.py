"""Idempotency-Key, row by row of the draft's table, required and where it may be left out."""

from __future__ import annotations

import asyncio
from typing import Any

import httpx2
import pytest
from fastapi import FastAPI, Request, Response

from shared.service import idempotency
from shared.service.idempotency import Replies
from shared.service.problems import install_problems
from shared.service.store import Store
from shared.service.tables import IDEMPOTENT_REPLIES, METADATA
from tests.service.service_world import BASE_URL, FakeClock, MakeWorld, World

THING = {"name": "a", "count": 1}
KEYED = {"idempotency-key": "k"}


async def create(world: World, key: str | None, body: dict[str, Any] = THING) -> httpx2.Response:
    async with world.client() as client:
        return await client.post("/v1/things", json=body, headers={"idempotency-key": key} if key else {})


async def test_same_key_and_body_gets_the_first_answer(world: World) -> None:
    first, second = await create(world, "k"), await create(world, "k")
    assert (first.status_code, second.status_code) == (201, 201)
    assert first.json() == second.json()
    assert first.headers["location"] == second.headers["location"]
    assert "idempotent-replayed" not in first.headers
    assert second.headers["idempotent-replayed"] == "true"
    assert world.acts == ["a"]
    assert (await create(world, "k2")).json() != first.json()


@pytest.mark.parametrize(
    ("key", "body", "status", "code"),
    [
        (None, THING, 400, "idempotency-key-missing"),
        ("k", {"name": "b", "count": 1}, 422, "idempotency-key-reused"),
        ("x" * 129, THING, 400, "idempotency-key-malformed"),
    ],
)
async def test_wrong_keys(world: World, key: str | None, body: dict[str, Any], status: int, code: str) -> None:
    await create(world, "k")
    response = await create(world, key, body)
    assert (response.status_code, response.json()["code"]) == (status, code)
    assert world.acts == ["a"]


async def test_a_refusal_is_not_kept(world: World) -> None:
    body = {"name": "forbidden", "count": 1}
    for _ in range(2):
        assert (await create(world, "k", body)).status_code == 403
    assert world.acts == ["forbidden", "forbidden"]


async def test_survives_a_restart(make_world: MakeWorld) -> None:
    async with make_world() as world:
        first = await create(world, "k")
    async with make_world() as world:
        world.clock.now += 3600
        second = await create(world, "k")
        assert (second.json(), world.acts) == (first.json(), [])
        world.clock.now += 24 * 3600
        third = await create(world, "k")
        assert world.acts == ["a"]
        assert third.json() == first.json()  # the same act makes the same id


async def test_in_progress_and_two_callers(database_url: str) -> None:
    store, clock = Store(database_url), FakeClock()
    await store.open()
    await store.write(METADATA.create_all)
    replies, gate, begun, acts = Replies(store, clock), asyncio.Event(), asyncio.Event(), []
    app = FastAPI()
    install_problems(app)

    @app.post("/{caller}")
    async def post(request: Request, caller: str) -> Response:
        async def act(key: str) -> Response:
            acts.append((caller, key))
            begun.set()
            await gate.wait()
            return Response(b"\x00done", 201)

        return await replies.once(request, caller, act)

    headers = {"idempotency-key": "k"}
    async with httpx2.AsyncClient(transport=httpx2.ASGITransport(app=app), base_url=BASE_URL) as client:
        running = asyncio.ensure_future(client.post("/anna", headers=headers))
        await begun.wait()
        busy = await client.post("/anna", headers=headers)
        assert (busy.status_code, busy.json()["code"]) == (409, "idempotency-in-progress")
        assert busy.headers["retry-after"] == "1"
        other = asyncio.ensure_future(client.post("/berta", headers=headers))
        gate.set()
        assert (await running).content == (await other).content == b"\x00done"
        assert (await client.post("/anna", headers=headers)).headers["idempotent-replayed"] == "true"
    assert sorted(acts) == [("anna", "k"), ("berta", "k")]
    await store.close()


@pytest.mark.parametrize(("limit", "callers_rows"), [(10, 10_000), (1_000, 10)])
@pytest.mark.parametrize("ahead", [0.0, 365 * 86_400.0])
async def test_bounded(
    sqlite_url: str, monkeypatch: pytest.MonkeyPatch, ahead: float, limit: int, callers_rows: int
) -> None:
    """Also after a clock that was ahead: what it gave out then does not stay in place of what comes after it."""
    monkeypatch.setattr(idempotency, "CALLERS_ROWS", callers_rows)
    store, clock = Store(sqlite_url), FakeClock()
    await store.open()
    await store.write(METADATA.create_all)
    replies = Replies(store, clock, limit=limit)
    clock.now += ahead
    for index in range(10):
        await replies._keep("caller", f"ahead{index}", bytes(32), Response(b"x", 201))
    clock.now -= ahead
    for index in range(140):
        clock.now += 1
        await replies._keep("caller", f"k{index}", bytes(32), Response(b"x", 201))
    await replies.open()
    await store.write(lambda c: replies._trim(c, "caller"))
    rows = await store.read(lambda c: c.execute(IDEMPOTENT_REPLIES.select()).all())
    assert {row.key for row in rows} == {f"k{index}" for index in range(130, 140)}
    await store.close()


async def test_who_fills_what_may_be_kept_pushes_out_its_own(sqlite_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """With fresh keys a repeat that changes nothing stored its answer each time, and in the end in place of everybody else's."""
    monkeypatch.setattr(idempotency, "CALLERS_ROWS", 300)
    store, clock = Store(sqlite_url), FakeClock()
    await store.open()
    await store.write(METADATA.create_all)
    replies = Replies(store, clock, limit=1000, callers_bytes=16_000)

    async def kept() -> dict[str, list[int]]:
        rows = await store.read(lambda c: c.execute(IDEMPOTENT_REPLIES.select()).all())
        return {who: [len(row.body) for row in rows if row.caller == who] for who in {row.caller for row in rows}}

    await replies._keep("quiet", "q", bytes(32), Response(b"quiet", 201))
    for index in range(100):
        clock.now += 1
        await replies._keep("flood", f"k{index}", bytes(32), Response(bytes(1000), 200))
    found = await kept()
    assert found["quiet"] == [5]
    assert 16 <= len(found["flood"]) <= 17
    newest = await store.read(lambda c: replies._find(c, "flood", "k99"))
    assert newest is not None
    for index in range(2000):
        clock.now += 1
        await replies._keep("many", f"k{index}", bytes(32), Response(b"", 200))
    found = await kept()
    assert found["quiet"] == [5]
    assert 300 <= len(found["many"]) < 300 + idempotency.PURGE_EVERY
    await replies._keep("large", "k", bytes(32), Response(bytes(20_000), 201))
    assert (await kept())["large"] == [20_000], "one answer is kept however long it is"
    await store.close()


async def test_a_key_that_may_be_left_out_is_honoured_where_it_is_there(world: World) -> None:
    async with world.client() as client:
        answers = [await client.post("/v1/notes", json=THING, headers=headers) for headers in ({}, {}, KEYED, KEYED)]
        assert [(a.status_code, a.json()["count"]) for a in answers] == [(201, 1), (201, 2), (201, 3), (201, 3)]
        assert [a.headers.get("idempotent-replayed") for a in answers] == [None, None, None, "true"]
        assert world.acts == ["a", "a", "a+key"]
        other = await client.post("/v1/notes", json={**THING, "count": 2}, headers=KEYED)
        assert (other.status_code, other.json()["code"]) == (422, "idempotency-key-reused")
        elsewhere = await client.post("/v1/notes?loud=true", json=THING, headers=KEYED)
        assert elsewhere.json()["code"] == "idempotency-key-reused"


async def test_what_a_repeated_key_is_answered_is_documented(world: World) -> None:
    async with world.client() as client:
        document = (await client.get("/v1/openapi.json")).json()
    for path, required in (("/v1/things", True), ("/v1/notes", False)):
        operation = document["paths"][path]["post"]
        [key] = [parameter for parameter in operation["parameters"] if parameter["name"] == "Idempotency-Key"]
        assert (key["in"], key["required"]) == ("header", required)
        assert "idempotency-key-reused" in operation["responses"]["422"]["description"]
        assert "application/problem+json" in operation["responses"]["422"]["content"]
        assert operation["responses"]["201"]["headers"]["Idempotent-Replayed"]["schema"]["const"] == "true"
    assert "422" not in document["paths"]["/v1/archive"]["put"]["responses"]
