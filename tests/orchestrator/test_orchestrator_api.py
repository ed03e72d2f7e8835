"""The orchestrator's REST surface over a real store, with real signatures, without a GPU agent: what needs no GPU must work without one."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx2
import pytest
from fastapi import FastAPI

from gpu_agent.platform.device_manufacture import manufacture_device
from gpu_agent.platform.manufacture import manufacture
from orchestrator.app import create_app
from orchestrator.settings import OrchestratorSettings
from shared.attestation.head_statements import sign_head_statement
from shared.canonical import sha256, sha384
from shared.claims.archive import open_archive, pack
from shared.claims.graph import Graph, Node, Ref, encode_graph
from shared.claims.program import InitRule, ProgramManifest, SeedInit, TensorSpec
from shared.claims.records import RecordField, RecordSchema
from shared.crypto.secret import Secret
from shared.crypto.signing import PartyKey
from shared.errors import Unavailable
from shared.protocol.merkle import EMPTY_ROOT
from shared.service.clock import system_clock, system_entropy
from shared.service.signatures import SignedAuth, content_digest
from shared.wire.visit import Evidence
from tests.orchestrator.orchestrator_samples import approval, key, manifest, signed

BASE = "http://orchestrator.test"
OWNER = key(99)


def archive() -> bytes:
    inputs = (("parameter", "w"), ("record", "x"))
    nodes = (Node("aten.mul.Tensor", (Ref(1), Ref(0))), Node("aten.sum.dim_IntList", (Ref(2), (1,))))
    graphs = {kind: encode_graph(Graph(kind, inputs, nodes, Ref(3))) for kind in ("train", "eval")}  # type: ignore[arg-type]
    declared = ProgramManifest(
        name="tiny", records=RecordSchema(fields=(RecordField(name="x", dtype="float32", shape=(2,)),)),
        parameters=(TensorSpec(name="w", dtype="float32", shape=(2,)),),
        graphs={kind: sha384(data).hex() for kind, data in graphs.items()},
        operators=("aten.mul.Tensor", "aten.sum.dim_IntList"),
        initial_weights=SeedInit(seed=1, rules=(InitRule(name="w", kind="normal", std=0.1),)),
    )  # fmt: skip
    return pack(declared, graphs)  # type: ignore[arg-type]


ARCHIVE = archive()
PROGRAM = open_archive(ARCHIVE).digest.hex()


class Enclave:
    """A quoting enclave that derives keys and is never asked for a quote: no test here gets as far as a channel."""

    async def derived_key(self, label: str) -> Secret:
        return Secret(sha256(label.encode()))

    async def quote(self, report_data: bytes) -> Evidence:
        raise Unavailable("no quotes here")

    async def registers(self) -> dict[int, bytes]:
        return {}

    async def extend(self, register: int, digest: bytes, before: bytes) -> None:
        raise Unavailable("no registers here")

    async def aclose(self) -> None:
        return None


class World:
    """An orchestrator in this process, and clients that sign."""

    def __init__(self, folder: Path, app: FastAPI) -> None:
        self.folder, self.app = folder, app

    def client(self, who: PartyKey) -> httpx2.AsyncClient:
        auth = SignedAuth(who, system_clock, system_entropy)
        return httpx2.AsyncClient(transport=httpx2.ASGITransport(self.app), base_url=BASE, auth=auth)


@asynccontextmanager
async def opened(folder: Path) -> AsyncIterator[World]:
    settings = OrchestratorSettings(
        data_dir=folder / "data", trust_dir=folder / "trust", evidence="emulated:unused", evidence_token_file=folder / "t",
        agent_url="http://127.0.0.1:9", platform_url="http://127.0.0.1:9", owner_keys=folder / "owners",
        allow_emulated=True, public_url=BASE,
    )  # fmt: skip
    app = create_app(settings, evidence=Enclave())
    async with app.router.lifespan_context(app):
        yield World(folder, app)


@pytest.fixture(scope="module")
def installation(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("installation")
    manufacture(folder, ["gpu-0"], ["orchestrator"], make_device=manufacture_device, at=system_clock())
    (folder / "owners").mkdir()
    (folder / "owners" / "alice.pub").write_bytes(OWNER.public_pem)
    return folder


@pytest.fixture
async def world(installation: Path, tmp_path: Path) -> AsyncIterator[World]:
    for name in ("trust", "owners"):
        (tmp_path / name).symlink_to(installation / name)
    async with opened(tmp_path) as made:
        yield made


async def put(client: httpx2.AsyncClient, path: str, body: bytes) -> httpx2.Response:
    return await client.put(path, content=body, headers={"content-digest": content_digest(sha256(body))})


async def prepared(world: World) -> httpx2.AsyncClient:
    owner = world.client(OWNER)
    for i in range(3):
        body = {"name": f"h{i}", "role": "holder", "public_key": key(i + 1).public.hex()}
        assert (await owner.post("/v1/parties", json=body)).status_code == 201
    assert (await put(owner, f"/v1/programs/{PROGRAM}/archive", ARCHIVE)).status_code == 201
    return owner


async def submit(owner: httpx2.AsyncClient, idempotency_key: str = "once", **changes: Any) -> httpx2.Response:
    document = manifest(program=PROGRAM, **changes).canonical()
    body = signed(OWNER, "gput/manifest", document).model_dump()
    return await owner.post("/v1/sessions", json=body, headers={"idempotency-key": idempotency_key})


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
    async with asyncio.timeout(10):
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


async def test_an_unfinished_model_and_anothers_model_are_not_given(world: World) -> None:
    owner = await prepared(world)
    session = (await submit(owner)).json()["id"]
    assert (await owner.get(f"/v1/sessions/{session}/model")).json()["code"] == "model-not-ready"
    assert (await world.client(key(1)).get(f"/v1/sessions/{session}/model")).json()["code"] == "output-policy"


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
            for answer in done:
                assert all("example" in content for content in answer["content"].values()), (method, path)
