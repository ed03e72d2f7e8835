"""The four services of one living world behind doors that a test may knock at from any thread. Knows no route.

The world (a session completed, another waiting for a holder that never answers) runs on an event loop of its own. A `Door` is an ASGI
application: it takes a request on whatever loop its client uses, gives it credentials, and serves it on the world's loop.
"""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import Awaitable, Callable, Coroutine
from contextlib import suppress
from pathlib import Path
from typing import Any, TypeVar

import httpx2

from gpu_agent.platform.files import Installation
from gput.local.installation import GPU
from shared.canonical import sha256
from shared.crypto.signing import PartyKey
from shared.service.clock import system_clock, system_entropy
from shared.service.signatures import SignedAuth
from shared.wire.copy import MAX_RECORDS_AT_ONCE
from tests.world.world import World, url
from tests.world.world_material import HOLDERS, Material

T = TypeVar("T")
Message = dict[str, Any]
Credentials = Callable[[httpx2.Request], None]
"""Puts credentials on a request."""

READER_TOKEN = "reader-of-conformance"
ABSENT, AUDITOR = "absent", "inspector"
HOLDER = HOLDERS[0]
CREDENTIAL_HEADERS = ("authorization", "signature", "signature-input", "content-digest")


def nobody(request: httpx2.Request) -> None:
    """No credentials."""


def signed(key: PartyKey) -> Credentials:
    """RFC 9421 by this key."""
    return SignedAuth(key, system_clock, system_entropy).sign


def bearer(token: str) -> Credentials:
    """A bearer token."""

    def put(request: httpx2.Request) -> None:
        request.headers["authorization"] = f"Bearer {token}"

    return put


class Stage:
    """`sessions["done"]` is completed, `sessions["waiting"]` waits for `ABSENT`; `visit` is a closed one of `HOLDER`."""

    def __init__(self, folder: Path, material: Material) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="conformance-world", daemon=True)
        self._thread.start()
        tokens = folder / "readers.json"
        tokens.write_text(json.dumps({sha256(READER_TOKEN.encode()).hex(): "reader"}))
        self.keys = dict(material.keys) | {name: PartyKey.generate() for name in (ABSENT, AUDITOR)}
        self.sessions: dict[str, str] = {}
        self.visit = ""
        self.weights = sha256(material.weights).hex()
        self.world = self.call(self._begin(folder / "world", material, tokens))
        place = Installation(self.world.folder)
        self.keys["platform"] = PartyKey.load(place.mux_key)
        self.keys["orchestrator"] = PartyKey.load(self.world.folder / "orchestrator" / "identity.pem")
        self.cvm_token = place.token(f"holder-{HOLDER}").read_text()
        state = self.world.folder / f"holder-{HOLDER}"
        self.holder_tokens = {name: (state / f"{name}.token").read_text().strip() for name in ("operator", "auditor")}

    def call(self, act: Coroutine[Any, Any, T]) -> T:
        """Run on the world's loop and wait."""
        return asyncio.run_coroutine_threadsafe(act, self._loop).result(240)

    async def _begin(self, folder: Path, material: Material, tokens: Path) -> World:
        world = World(
            folder, material, settings={"orchestrator": {"reader_tokens": tokens}}, at_once=MAX_RECORDS_AT_ONCE
        )
        await world.__aenter__()
        await world.owner.enrol(ABSENT, self.keys[ABSENT].public)
        await world.owner.enrol(AUDITOR, self.keys[AUDITOR].public, "auditor")
        self.sessions["done"] = await world.submit()
        await world.completed(self.sessions["done"], 100)
        self.visit = next(v["id"] for v in await world.visits(self.sessions["done"]) if v["holder"] == HOLDER)
        await self._until_receipts(world)
        self.sessions["waiting"] = await self._submit_waiting(world, material)
        return world

    async def _until_receipts(self, world: World) -> None:
        """The holder proves its receipts in the log after the session's end."""
        for _ in range(400):
            if len((await world.operator(HOLDER).get("receipts"))["items"]) >= 2:
                return
            await asyncio.sleep(0.02)
        raise AssertionError("the holder did not get its receipts")

    async def _submit_waiting(self, world: World, material: Material) -> str:
        manifest = material.manifest(holders=(HOLDER,), name="waiting")
        entry = manifest.roster[0].model_copy(update={"holder": ABSENT, "key": self.keys[ABSENT].fingerprint})
        view = await world.owner.submit(manifest.model_copy(update={"roster": (*manifest.roster, entry)}))
        await world.operator(HOLDER).request(view["id"])
        await world.until(view["id"], lambda now: [h["decision"] for h in now["holders"]] == ["approve", None])
        return str(view["id"])

    def close(self) -> None:
        """Stop the world and its loop."""
        self.call(self.world.__aexit__(None, None, None))
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(10)
        self._loop.close()

    def door(self, service: str, credentials: Credentials = nobody) -> Door:
        """A way in. `service`: agent, platform, orchestrator, holder-…"""
        app = self.world[service].app
        assert app is not None
        return Door(app, url(service), credentials, self._loop)

    def request(
        self, service: str, method: str, path: str, credentials: Credentials = nobody, **options: Any
    ) -> httpx2.Response:
        """One request, answered in whole."""

        async def act() -> httpx2.Response:
            transport = httpx2.ASGITransport(app=self.world[service].app, raise_app_exceptions=False)
            async with httpx2.AsyncClient(transport=transport, base_url=url(service), timeout=30) as client:
                request = client.build_request(method, path, **options)
                credentials(request)
                return await client.send(request)

        return self.call(act())

    def openapi(self, service: str) -> dict[str, Any]:
        """The service's OpenAPI document."""
        app = self.world[service].app
        assert app is not None
        return app.openapi()


class Door:
    """An ASGI application on any loop; the service behind it runs on its own."""

    def __init__(self, app: Any, base: str, credentials: Credentials, loop: asyncio.AbstractEventLoop) -> None:
        self._app, self._base, self._credentials, self._loop = app, base, credentials, loop

    async def __call__(self, scope: Message, receive: Callable[[], Awaitable[Message]], send: Any) -> None:
        """One request; a client that goes away cancels it."""
        if scope["type"] != "http":
            raise RuntimeError("the world behind this door is started and stopped by its stage")
        body = b""
        while True:
            message = await receive()
            body += message.get("body", b"")
            if not message.get("more_body"):
                break
        here, answers = asyncio.get_running_loop(), asyncio.Queue[Message | BaseException | None]()

        async def put(message: Message | BaseException | None) -> None:
            here.call_soon_threadsafe(answers.put_nowait, message)

        serving = asyncio.run_coroutine_threadsafe(self._serve(self._identified(scope, body), body, put), self._loop)
        try:
            while (answer := await answers.get()) is not None:
                if isinstance(answer, BaseException):
                    raise answer
                await send(answer)
        finally:
            serving.cancel()

    async def _serve(self, scope: Message, body: bytes, put: Callable[[Any], Awaitable[None]]) -> None:
        gone, parts = asyncio.Event(), [{"type": "http.request", "body": body, "more_body": False}]

        async def receive() -> Message:
            if parts:
                return parts.pop()
            await gone.wait()
            return {"type": "http.disconnect"}

        try:
            await self._app(scope, receive, put)
        except Exception as error:
            await put(error)
        finally:
            gone.set()
            with suppress(RuntimeError):  # the client's loop may have ended by now
                await put(None)

    def _identified(self, scope: Message, body: bytes) -> Message:
        """The request as this caller would send it: to the service's own address, with its credentials and no others."""
        kept = [(k, v) for k, v in scope["headers"] if k.decode("latin-1").lower() != "host"]
        host = self._base.split("//")[1].encode()
        query = scope["query_string"].decode("latin-1")
        target = self._base + scope["raw_path"].decode("latin-1") + (f"?{query}" if query else "")
        if self._credentials is not nobody:
            kept = [(k, v) for k, v in kept if k.decode("latin-1").lower() not in CREDENTIAL_HEADERS]
            extra = [(k, v) for k, v in kept if k.lower() == b"idempotency-key"]  # bytes: it need not be ASCII
            request = httpx2.Request(scope["method"], target, headers=extra, content=body)
            self._credentials(request)
            names = [n for n in CREDENTIAL_HEADERS if n in request.headers]
            kept += [(name.encode(), request.headers[name].encode("latin-1")) for name in names]
            scope = {**scope, "raw_path": request.url.raw_path.split(b"?")[0], "query_string": request.url.query}
        return {**scope, "headers": [(b"host", host), *kept], "state": {}}


__all__ = ["ABSENT", "AUDITOR", "GPU", "HOLDER", "READER_TOKEN", "Door", "Stage", "bearer", "nobody", "signed"]
