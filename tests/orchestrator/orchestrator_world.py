"""The orchestrator's application with a quoting enclave of its own, no peers, and a clock that tests turn."""

from __future__ import annotations

import shutil
from collections.abc import AsyncIterator
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
from shared.canonical import sha256, sha384
from shared.claims.archive import open_archive
from shared.claims.graph import Graph, Node, Ref, encode_graph
from shared.claims.new_programs import pack
from shared.claims.program import InitRule, ProgramManifest, SeedInit, TensorSpec
from shared.claims.records import RecordField, RecordSchema
from shared.crypto.secret import Secret
from shared.crypto.signing import PartyKey
from shared.errors import Unavailable
from shared.service.clock import system_clock, system_entropy
from shared.service.signature_base import content_digest
from shared.service.signatures import SignedAuth
from shared.wire.visit import Evidence
from tests.orchestrator.orchestrator_samples import key, manifest, signed
from tests.schemas import lay

BASE = "http://orchestrator.test"


OWNER, BOB = key(99), key(98)


def archive(**texts: str) -> bytes:
    """A tiny program. `texts`: what it says of itself to people."""
    inputs = (("parameter", "w"), ("record", "x"))
    nodes = (Node("aten.mul.Tensor", (Ref(1), Ref(0))), Node("aten.sum.dim_IntList", (Ref(2), (1,))))
    graphs = {kind: encode_graph(Graph(kind, inputs, nodes, Ref(3))) for kind in ("train", "eval")}  # type: ignore[arg-type]
    declared = ProgramManifest(
        name="tiny", records=RecordSchema(fields=(RecordField(name="x", dtype="float32", shape=(2,)),)),
        parameters=(TensorSpec(name="w", dtype="float32", shape=(2,)),),
        graphs={kind: sha384(data).hex() for kind, data in graphs.items()},
        operators=("aten.mul.Tensor", "aten.sum.dim_IntList"),
        initial_weights=SeedInit(seed=1, rules=(InitRule(name="w", kind="normal", std=0.1),)), **texts,
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

    async def relaunch(self) -> bool:
        return False

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
    lay(settings.store_url, "orchestrator")
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


@pytest.fixture
async def two_owners(installation: Path, tmp_path: Path) -> AsyncIterator[World]:
    """As `world`, with a second owner, bob, whose key is `BOB`."""
    (tmp_path / "trust").symlink_to(installation / "trust")
    shutil.copytree(installation / "owners", tmp_path / "owners")
    (tmp_path / "owners" / "bob.pub").write_bytes(BOB.public_pem)
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
