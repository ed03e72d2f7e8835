"""However much is wrong with what a party sends, little of it is looked at, and the event loop turns meanwhile."""

from __future__ import annotations

import shutil
import threading

import pytest
from fastapi.routing import APIRoute

from orchestrator import library
from orchestrator.sessions import catalogue
from shared.claims.archive import Archive
from shared.claims.manifest import Manifest
from shared.service.bodies import MOST_VALUES
from shared.service.direct import LONGEST_DOCUMENT
from tests.orchestrator.orchestrator_samples import key
from tests.orchestrator.orchestrator_world import ARCHIVE, PROGRAM, World, archive, prepared, put, submit

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


async def test_archives_are_opened_beside_the_event_loop_and_not_kept_as_they_came(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    threads, open_it = list[threading.Thread](), library.open_archive

    def watched(data: bytes) -> Archive:
        threads.append(threading.current_thread())
        return open_it(data)

    monkeypatch.setattr(library, "open_archive", watched)
    monkeypatch.setattr(library, "MOST_OPENED", 2)
    owner, parts = await prepared(world), world.app.state.orchestrator.library
    digests = [PROGRAM]
    for number in range(2):
        data = archive(description=f"number {number}")
        digests.append(library.open_archive(data).digest.hex())
        threads.pop()
        assert (await put(owner, f"/v1/programs/{digests[-1]}/archive", data)).status_code == 201
    assert len(threads) == 3
    for digest in (*digests[:2], digests[0], digests[2], digests[0], digests[1]):
        assert (await parts.program(digest)).digest.hex() == digest
    assert len(threads) == 7, "of the three two stay opened, those that were asked for last"
    assert threading.main_thread() not in threads
    assert ARCHIVE not in parts._opened


async def test_a_folder_for_uploads_that_cannot_be_made_is_a_disk_that_cannot_be_used(world: World) -> None:
    owner = await prepared(world)
    uploads = world.folder / "data" / "uploads"
    shutil.rmtree(uploads, ignore_errors=True)
    uploads.write_bytes(b"")
    for path in (f"/v1/programs/{PROGRAM}/archive", f"/v1/weights/{'0' * 64}"):
        answer = await put(owner, path, ARCHIVE)
        assert (answer.status_code, answer.json()["code"]) == (503, "disk-unusable")
