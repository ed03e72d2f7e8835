"""A stream of events ends with what it watches, which may be before the service does; a keep-alive is no life."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from pathlib import Path

from starlette.requests import Request

from shared.service.app import create_service_app, service_state
from shared.service.changes import Changes, Stopping
from shared.service.event_reader import Event
from shared.service.settings import ServiceSettings
from shared.service.sse import event_stream


async def _text(lines: AsyncIterator[bytes | str | memoryview]) -> list[str]:
    return [line if isinstance(line, str) else bytes(line).decode() async for line in lines]


async def test_a_stream_ends_with_the_term_that_it_watches(tmp_path: Path) -> None:
    app = create_service_app("things", "1", settings=ServiceSettings(data_dir=tmp_path))
    term = Stopping(service_state(app).stopping)
    changes = Changes(term)
    request = Request({"type": "http", "method": "GET", "path": "/", "headers": [], "app": app})
    heard = asyncio.Event()

    async def one(after: int) -> Sequence[Event]:
        if after < 1:
            return [Event(1, "said", {})]
        heard.set()
        return []

    response = event_stream(request, one, changes, keep_alive_s=3600)
    reading = asyncio.ensure_future(_text(response.body_iterator))  # type: ignore[arg-type]  # Starlette's own type is wider
    await heard.wait()
    assert not reading.done()
    term.set()
    assert not service_state(app).stopping.is_set
    async with asyncio.timeout(100):
        lines = await reading
    assert len(lines) == 2  # when to come back, and the event: nothing was sent to keep a dead stream alive
    assert "event: said" in lines[1]
