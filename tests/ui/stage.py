"""A living world whose orchestrator and one holder answer on loopback ports, as a browser needs it. Knows no page.

The world runs on an event loop of its own; tests speak to it from the main thread.
"""

from __future__ import annotations

import asyncio
import json
import socket
import threading
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any, TypeVar

import uvicorn

from shared.canonical import sha256
from shared.crypto.signing import PartyKey
from shared.wire.copy import MAX_RECORDS_AT_ONCE
from tests.world.world import World
from tests.world.world_material import HOLDERS, Material

T = TypeVar("T")
READER, OWNER_READER = "reader-of-pages-0123456789", "owner-reader-of-pages-0123456789"
HOSTILE = '<img src=x onerror="window.hostile=1">'
HOLDER = HOLDERS[0]


class Server:
    """An ASGI application on a free loopback port."""

    def __init__(self, application: Callable[[], Any]) -> None:
        self._application = application
        self._socket = socket.create_server(("127.0.0.1", 0))
        self.url = f"http://127.0.0.1:{self._socket.getsockname()[1]}"
        config = uvicorn.Config(
            self._serve, lifespan="off", interface="asgi3", log_level="critical", timeout_graceful_shutdown=1
        )
        self._server = uvicorn.Server(config)
        self._task: asyncio.Task[None] | None = None

    async def _serve(self, scope: Any, receive: Any, send: Any) -> None:
        # Asked at each request: a service that was restarted is another application.
        await self._application()(scope, receive, send)

    async def start(self) -> None:
        self._task = asyncio.create_task(self._server.serve(sockets=[self._socket]))

    async def stop(self) -> None:
        self._server.should_exit = True
        if self._task is not None:
            await self._task


class UiStage:
    """`sessions["done"]` is completed; `sessions["waiting"]` has a hostile name and waits for two holders that do not answer.

    The operator of `HOLDER` decides by hand, so that no session begins before a test wants it.
    """

    def __init__(self, folder: Path, material: Material) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="ui-world", daemon=True)
        self._thread.start()
        tokens = folder / "readers.json"
        tokens.write_text(
            json.dumps({_digest(READER): "reader", _digest(OWNER_READER): {"name": "owner", "role": "owner"}})
        )
        self.material, self.sessions, self._absent = material, dict[str, str](), PartyKey.generate()
        settings = {"orchestrator": {"reader_tokens": tokens}, f"holder-{HOLDER}": {"approve": "manual"}}
        self.world = World(folder / "world", material, settings=settings, at_once=MAX_RECORDS_AT_ONCE)
        self.orchestrator = Server(lambda: self.world["orchestrator"].app)
        self.holder = Server(lambda: self.world[f"holder-{HOLDER}"].app)
        self.call(self._begin())
        state = self.world.folder / f"holder-{HOLDER}"
        self.tokens = {role: (state / f"{role}.token").read_text().strip() for role in ("operator", "auditor")}

    def call(self, act: Coroutine[Any, Any, T]) -> T:
        """Run on the world's loop and wait."""
        return asyncio.run_coroutine_threadsafe(act, self._loop).result(300)

    async def _begin(self) -> None:
        await self.world.__aenter__()
        for server in (self.orchestrator, self.holder):
            await server.start()
        self.sessions["done"] = await self.world.submit()
        await self.world.operator(HOLDER).decide(self.sessions["done"], "approve", dataset="ehr")
        await self.world.completed(self.sessions["done"])
        await self.world.owner.enrol("absent", self._absent.public, "holder")
        self.sessions["waiting"] = await self._submit_waiting(HOSTILE)

    async def _submit_waiting(self, name: str) -> str:
        """A session that never begins: it waits for `HOLDER` and for somebody who is not there."""
        manifest = self.material.manifest(holders=(HOLDER,), name=name, rounds=3)
        entry = manifest.roster[0].model_copy(update={"holder": "absent", "key": self._absent.fingerprint})
        view = await self.world.owner.submit(manifest.model_copy(update={"roster": (*manifest.roster, entry)}))
        await self.world.operator(HOLDER).request(view["id"])
        return str(view["id"])

    def submit_waiting(self, name: str) -> str:
        """Another one for a test to decide on."""
        return self.call(self._submit_waiting(name))

    def approve(self, session: str) -> None:
        """`HOLDER` agrees: what waits for it begins."""
        self.call(self.world.operator(HOLDER).decide(session, "approve", dataset="ehr"))

    def submit(self, **changes: Any) -> str:
        """Another session of the usual kind."""
        return str(self.call(self.world.owner.submit(self.material.manifest(**changes)))["id"])

    def completed(self, session: str) -> Any:
        """Once it is."""
        return self.call(self.world.completed(session))

    def close(self) -> None:
        """Stop the servers, the world and its loop."""

        async def stop() -> None:
            await self.orchestrator.stop()
            await self.holder.stop()
            await self.world.__aexit__(None, None, None)

        self.call(stop())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(10)
        self._loop.close()


def _digest(token: str) -> str:
    return sha256(token.encode()).hex()


__all__ = ["HOLDER", "HOSTILE", "OWNER_READER", "READER", "UiStage"]
