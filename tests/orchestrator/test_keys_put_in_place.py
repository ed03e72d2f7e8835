"""The list of enrolled keys is the platform's: who is put there under a holder's name speaks for no visit and hears of no session."""

from __future__ import annotations

import threading
from typing import Any

import pytest
from sqlalchemy import Connection, insert, update

from orchestrator.api import sight
from orchestrator.api.deps import Orchestrator, parts_of
from orchestrator.holders.inbox import Inboxes
from orchestrator.tables import PARTIES, PARTY_KEYS, VISITS
from shared.claims.manifest import Manifest
from shared.service.app import service_state
from shared.wire.visit import VisitRefusal
from tests.orchestrator.orchestrator_samples import key, manifest
from tests.orchestrator.orchestrator_world import PROGRAM, World, prepared, submit

VISIT, EPOCH = "v_aaaaaaaaaaaaaaaa", 7
OWN, MALLORY = key(1), key(77)
PARTY_KEY = {"name": "h0", "public_key": MALLORY.public.hex(), "fingerprint": MALLORY.fingerprint}
DECEIT = "nobo\u202edy \x1b[2Jsaid so"


def _put_in_place(connection: Connection) -> None:
    connection.execute(update(PARTIES).where(PARTIES.c.name == "h0").values(PARTY_KEY))
    connection.execute(insert(PARTY_KEYS).values(**PARTY_KEY, valid_from=1.0, came="enrolled", came_by="alice"))


def _refusal(detail: str = "we do not like it") -> dict[str, Any]:
    return {"visit": VISIT, "epoch": EPOCH, "code": "policy", "detail": detail}


class Scene:
    """A session of h0, h1 and h2, and a visit of it that is at h0."""

    def __init__(self, world: World, session: str) -> None:
        self.world, self.session, self.parts = world, session, parts_of(world.app)

    async def open(self) -> None:
        arrivals = self.parts.house.arrivals
        arrivals.plan(VISIT, "h0", EPOCH, OWN.fingerprint)
        arrivals.expect(VISIT)
        data = {"commitment": None, "epoch": EPOCH}
        row = {"id": VISIT, "session": self.session, "number": 1, "holder": "h0", "phase": "AWAY", "data": data}
        await self.write(lambda connection: connection.execute(insert(VISITS).values(row)))

    async def write(self, act: Any) -> None:
        store = service_state(self.world.app).store
        assert store is not None
        await store.write(act)

    async def word(self) -> Any:
        return await self.parts.house.arrivals.word(VISIT, 0.01, lambda: None)


@pytest.fixture
async def scene(world: World) -> Scene:
    made = Scene(world, (await submit(await prepared(world))).json()["id"])
    await made.open()
    return made


async def test_the_holders_own_word_is_taken(scene: Scene) -> None:
    answer = await scene.world.client(OWN).post(f"/v1/visits/{VISIT}/refusal", json=_refusal())
    assert answer.status_code == 202
    assert await scene.word() == VisitRefusal(**_refusal())


async def test_who_was_put_in_its_place_speaks_for_no_visit(scene: Scene) -> None:
    """It ended the visit, and the holder was blamed for it."""
    await scene.write(_put_in_place)
    stranger = scene.world.client(MALLORY)
    assert (await stranger.get("/v1/whoami")).json()["name"] == "h0"
    timers = dict.fromkeys(("grab_gpu", "import_key", "buffer_read", "gpu_write", "export_key"), 0)
    report = {"records": 8, "length": 64, "commitment": "0" * 64, "bytes_sent": 64, "timers": timers}
    said = {"report": {"visit": VISIT, "epoch": EPOCH, **report}, "refusal": _refusal()}
    for kind, body in said.items():
        answer = await stranger.post(f"/v1/visits/{VISIT}/{kind}", json=body)
        assert (answer.status_code, answer.json()["code"]) == (403, "key-replaced"), kind
    assert await scene.word() is None
    assert scene.parts.house.arrivals.away(VISIT)


async def test_who_was_put_in_its_place_hears_of_no_session_but_of_its_end(scene: Scene) -> None:
    inboxes: Inboxes = scene.parts.house.inboxes
    await scene.write(_put_in_place)
    stranger, other = scene.world.client(MALLORY), scene.world.client(key(2))
    first = (await stranger.get("/v1/inbox")).json()
    assert first["items"] == []
    for holder in ("h0", "h1"):
        inboxes.post(holder, kind="channel_wanted", session=scene.session)
        inboxes.post(holder, kind="ended", session=scene.session, phase="CANCELLED")
    for client, kinds in ((stranger, ["ended"]), (other, ["channel_wanted", "ended"])):
        found = (await client.get("/v1/inbox", params={"after": first["next"]})).json()
        assert [item["kind"] for item in found["items"]] == kinds
        assert found["next"] == inboxes._seq - (client is stranger) * 2


async def test_a_refusal_is_taken_in_characters_that_can_be_seen(scene: Scene) -> None:
    """It goes into a leaf of the log, and onto everybody's page and terminal."""
    for _ in range(2):  # said again it is the same
        answer = await scene.world.client(OWN).post(f"/v1/visits/{VISIT}/refusal", json=_refusal(DECEIT))
        assert answer.status_code == 202
    assert (await scene.word()).detail == "nobo?dy ?[2Jsaid so"


async def test_a_holders_page_stops_nobody(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each row's manifest was parsed on the event loop, one after the other, for every page: seconds in which no visit went on."""
    threads, read = list[threading.Thread](), sight.read_manifest

    def watched(document: bytes) -> Manifest:
        threads.append(threading.current_thread())
        return read(document)

    monkeypatch.setattr(sight, "read_manifest", watched)
    owner, sessions = await prepared(world), list[str]()
    for number in range(40):
        sessions.append((await submit(owner, f"act-{number}", name=f"study {number}")).json()["id"])
    assert await _listed(owner) == sessions
    assert not threads, "an owner's page needs none of them"
    for _ in range(2):
        assert await _listed(world.client(key(1))) == sessions
    assert (len(threads), threading.main_thread() in threads) == (40, False), "each once"


async def _listed(client: Any) -> list[str]:
    return [view["id"] for view in (await client.get("/v1/sessions", params={"limit": 500})).json()["items"]]


async def test_pages_are_read_without_their_manifests(world: World) -> None:
    await submit(await prepared(world))
    parts: Orchestrator = parts_of(world.app)
    [row] = await parts.catalogue.page(0, 10)
    assert not {"manifest", "signature"} & row.keys()
    assert await parts.catalogue.manifests([row["id"], "s_none"]) == {row["id"]: manifest(program=PROGRAM).canonical()}


def test_what_rosters_say_is_not_remembered_without_an_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sight, "MOST", 3)
    keys = sight.RosterKeys()
    for number in range(5):
        assert keys.of(manifest(name=f"study {number}").canonical(), "h0") == OWN.fingerprint
    assert keys.of(b"none", "h0") is None
    assert keys.of(manifest().canonical(), "h9") is None
    assert len(keys._known) == 3
