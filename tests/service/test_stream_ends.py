"""A stream of events ends with what it watches, which may be before the service does; a keep-alive is no life."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from pathlib import Path
from typing import cast

from starlette.requests import Request
from starlette.responses import Response, StreamingResponse

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

    response = await event_stream(request, one, changes, keep_alive_s=3600)
    assert isinstance(response, StreamingResponse)
    reading = asyncio.ensure_future(_text(response.body_iterator))  # type: ignore[arg-type]  # Starlette's own type is wider
    await heard.wait()
    assert not reading.done()
    term.set()
    assert not service_state(app).stopping.is_set
    async with asyncio.timeout(100):
        lines = await reading
    assert len(lines) == 2  # when to come back, and the event: nothing was sent to keep a dead stream alive
    assert "event: said" in lines[1]


async def test_who_has_heard_the_last_event_waits_for_no_more(tmp_path: Path) -> None:
    """A browser comes back with its id after the stream has ended; it would hear keep-alives for ever."""
    app = create_service_app("things", "1", settings=ServiceSettings(data_dir=tmp_path))
    changes, over = Changes(service_state(app).stopping), asyncio.Event()

    async def two(after: int) -> Sequence[Event]:
        return [Event(number, "said", {}) for number in (1, 2) if number > after]

    async def taken_up(last: int) -> Response:
        headers = [(b"last-event-id", str(last).encode())]
        request = Request({"type": "http", "method": "GET", "path": "/", "headers": headers, "app": app})
        return await event_stream(request, two, changes, keep_alive_s=0.01, ended=over.is_set)

    early = await taken_up(2)
    assert isinstance(early, StreamingResponse)
    lines = aiter(cast(AsyncIterator[bytes], early.body_iterator))
    assert [b": " in await anext(lines) for _ in range(2)] == [True, True], "until then it is kept alive"
    over.set()
    async with asyncio.timeout(60):
        assert len(await _text(lines)) <= 1, "no more than the keep-alive that was on its way"
        missed = await taken_up(1)
        assert isinstance(missed, StreamingResponse)
        assert len(await _text(cast(AsyncIterator[bytes], missed.body_iterator))) == 2, (
            "when to come back, and what it missed"
        )
        assert (await taken_up(2)).status_code == 204
