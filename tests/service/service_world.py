"""A small service of its own for these tests: real keys, a real store, in process."""

from __future__ import annotations

import random
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any

import httpx2
from fastapi import Depends, FastAPI, Request, Response
from fastapi.responses import JSONResponse
from pydantic import BaseModel, Field

from shared.canonical import sha256
from shared.crypto.signing import PartyKey
from shared.errors import GputError, Refused
from shared.names import Role
from shared.service.callers import CallerDep, SignedStream, require, require_stream
from shared.service.clock import Clock
from shared.service.idempotency import KEY_HONOURED, KEY_REQUIRED, Replies
from shared.service.signatures import Caller, KnownKey, SignedAuth
from shared.service.store import Store

BASE_URL = "http://service.test"
OWNER = PartyKey.generate(random.Random(1).randbytes)
HOLDER = PartyKey.generate(random.Random(2).randbytes)
STRANGER = PartyKey.generate(random.Random(3).randbytes)
KNOWN = {
    OWNER.fingerprint: KnownKey(OWNER.public, "olga", frozenset({Role.OWNER})),
    HOLDER.fingerprint: KnownKey(HOLDER.public, "north", frozenset({Role.HOLDER})),
}


class FakeClock:
    """A clock that the test moves."""

    def __init__(self, now: float = 1_800_000_000.0) -> None:
        self.now = now

    def __call__(self) -> float:
        return self.now


async def known_keys(fingerprint: str) -> KnownKey | None:
    return KNOWN.get(fingerprint)


async def bearer(token: str) -> Caller | None:
    return Caller("token", "reader", frozenset({Role.AUDITOR})) if token == "right" else None


class Thing(BaseModel):
    name: str = Field(max_length=10)
    count: int = Field(ge=0)


class World:
    """The service, its clock, and signed clients."""

    def __init__(self, app: FastAPI, clock: FakeClock, store: Store) -> None:
        self.app = app
        self.clock = clock
        self.store = store
        self.acts: list[str] = []

    def client(self, key: PartyKey | None = OWNER, clock: Clock | None = None) -> httpx2.AsyncClient:
        auth = SignedAuth(key, clock or self.clock, random.Random().randbytes) if key is not None else None
        return httpx2.AsyncClient(transport=httpx2.ASGITransport(app=self.app), base_url=BASE_URL, auth=auth)


def add_routes(app: FastAPI, world: World, replies: Replies, folder: Path) -> None:
    @app.get("/v1/whoami")
    async def whoami(caller: CallerDep) -> dict[str, Any]:
        return {"name": caller.name, "roles": sorted(caller.roles)}

    @app.post("/v1/things", status_code=201, openapi_extra=KEY_REQUIRED)
    async def create(
        thing: Thing, request: Request, caller: Annotated[Caller, Depends(require(Role.OWNER))]
    ) -> Response:
        async def act(key: str) -> Response:
            world.acts.append(thing.name)
            if thing.name == "forbidden":
                raise Refused("policy says no", code="no-such-thing", remedy="Ask.", expected="a", got="b")
            thing_id = sha256(f"{caller.fingerprint} {key}".encode()).hex()
            return JSONResponse({"id": thing_id}, 201, headers={"location": f"/v1/things/{thing_id}"})

        return await replies.once(request, caller.fingerprint, act)

    @app.post("/v1/notes", status_code=201, openapi_extra=KEY_HONOURED)
    async def note(thing: Thing, request: Request, caller: CallerDep) -> Response:
        async def act(keyed: bool) -> Response:
            world.acts.append(thing.name + ("+key" if keyed else ""))
            return JSONResponse({"count": len(world.acts)}, 201)

        return await replies.once_if_keyed(request, caller.fingerprint, act)

    @app.put("/v1/archive")
    async def archive(upload: Annotated[SignedStream, Depends(require_stream(Role.OWNER))]) -> dict[str, int]:
        path = await upload.spool(folder, limit_bytes=6_000_000)
        size = path.stat().st_size
        path.unlink()
        return {"size": size}

    @app.get("/v1/broken")
    async def broken() -> None:
        raise RuntimeError("record 4711 of patient Smith")

    @app.get("/v1/refused")
    async def refused() -> None:
        raise GputError("try later", code="odd", retry_after_s=7)


MakeWorld = Callable[[], Any]
