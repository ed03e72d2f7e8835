"""A service process for these tests: long-poll, event stream, slow request. Started as `python echo_service.py`."""

from __future__ import annotations

import asyncio
import gc
import sys
import weakref
from collections.abc import Sequence

from fastapi import FastAPI, Request
from pydantic_settings import SettingsConfigDict
from starlette.responses import Response

from shared.errors import Unavailable
from shared.service.app import create_service_app, service_state
from shared.service.changes import Changes
from shared.service.event_reader import Event
from shared.service.server import service_main
from shared.service.settings import ServiceSettings
from shared.service.sse import event_stream


class EchoSettings(ServiceSettings):
    """An echo."""

    model_config = SettingsConfigDict(env_prefix="ECHO_", extra="forbid")

    greeting: str = "hello"
    refuse: bool = False


def create(settings: EchoSettings, base_url: str) -> FastAPI:
    """The application."""
    if settings.refuse:
        raise Unavailable("the quoting enclave is not there", remedy="Start the platform first.")
    app = create_service_app("echo", "1", settings=settings, base_url=base_url)
    changes = Changes(service_state(app).stopping)
    events: list[Event] = []

    async def source(after: int) -> Sequence[Event]:
        return [event for event in events if event.id > after][:2]

    @app.get("/greeting")
    async def greeting() -> dict[str, str]:
        return {"greeting": settings.greeting, "base_url": base_url}

    @app.post("/events")
    async def add(kind: str) -> dict[str, int]:
        events.append(Event(len(events) + 1, kind, {"line": "a\nb", "n": len(events) + 1}))
        changes.notify()
        return {"id": len(events)}

    @app.get("/events")
    async def stream(request: Request, after: int = 0) -> Response:
        return await event_stream(
            request, source, changes, after=after, keep_alive_s=0.2, until=lambda event: event.event == "end"
        )

    @app.get("/poll")
    async def poll(seen: int, wait: float) -> dict[str, int]:
        return {"version": await changes.wait(seen, wait)}

    @app.get("/cycles")
    async def cycles() -> dict[str, int]:
        class Knot:
            def __init__(self) -> None:
                self.me = self

        gone = weakref.ref(Knot())
        found = gc.collect()
        return {
            "left_out": gc.get_freeze_count(),
            "looked_at": len(gc.get_objects()),
            "found": found,
            "kept": gone() is not None,
        }

    @app.get("/slow")
    async def slow(seconds: float) -> dict[str, float]:
        await asyncio.sleep(seconds)
        return {"slept": seconds}

    return app


if __name__ == "__main__":
    sys.exit(service_main(EchoSettings, create, ready=lambda: {"backend": "EMULATED"}))
