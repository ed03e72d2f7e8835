"""However much is wrong with what a party sends, little of it is looked at, and the event loop turns meanwhile."""

from __future__ import annotations

import threading

import pytest
from fastapi.routing import APIRoute

from orchestrator.sessions import catalogue
from shared.claims.manifest import Manifest
from shared.service.bodies import MOST_VALUES
from shared.service.direct import LONGEST_DOCUMENT
from tests.orchestrator.orchestrator_samples import key
from tests.orchestrator.orchestrator_world import World, prepared, submit

VISIT = "v_00000000000000aa"
UNKNOWN = {f"a{number}": 0 for number in range(MOST_VALUES + 1)}


async def test_a_manifest_is_judged_beside_the_event_loop(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    threads, read = list[threading.Thread](), catalogue.read_manifest

    def watched(document: bytes) -> Manifest:
        threads.append(threading.current_thread())
        return read(document)

    monkeypatch.setattr(catalogue, "read_manifest", watched)
    assert (await submit(await prepared(world))).status_code == 201
    assert threads
    assert threading.main_thread() not in threads


def test_no_body_is_described_fault_by_fault_without_end(world: World) -> None:
    """Of every route whose body the framework reads: it makes a list of all that is wrong before anybody can cut it short."""
    bodies = [route for route in world.app.routes if isinstance(route, APIRoute) and route.body_field is not None]
    for route in bodies:
        assert route.body_field is not None
        for body in (UNKNOWN, {"document": [[0]] * MOST_VALUES}):
            _, errors = route.body_field.validate(body, {}, loc=("body",))
            assert [error["type"] for error in errors] == ["too_many_values"], route.path
    assert {"/v1/sessions", "/v1/sessions/{session}/heads", "/v1/sessions/{session}/channels/{channel}"} <= {
        route.path for route in bodies
    }


async def test_what_is_said_of_such_a_body(world: World) -> None:
    await prepared(world)
    answer = await world.client(key(1)).post("/v1/sessions/s_0123456789abcdef/heads", json=UNKNOWN)
    assert (answer.status_code, answer.json()["code"]) == (422, "invalid-request")
    assert answer.json()["errors"] == [{"field": "body", "message": f"holds more than {MOST_VALUES} values"}]


@pytest.mark.parametrize("word", ["report", "refusal"])
async def test_a_word_on_a_visit_is_short(world: World, word: str) -> None:
    await prepared(world)
    said = {"visit": VISIT, "note": "x" * LONGEST_DOCUMENT}
    answer = await world.client(key(1)).post(f"/v1/visits/{VISIT}/{word}", json=said)
    assert (answer.status_code, answer.json()["code"]) == (413, "body-too-large")
