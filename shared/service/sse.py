"""Server-sent events with replay: a stream that takes up after Last-Event-ID; its reader is `event_reader`. Knows no event's meaning."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import NamedTuple

from fastapi import Request, Response
from fastapi.sse import KEEPALIVE_COMMENT, format_sse_event
from starlette.responses import StreamingResponse
from starlette.types import Receive, Scope, Send

from shared.errors import BadRequest, GputError
from shared.service.callers import still_counts
from shared.service.changes import Changes
from shared.service.event_reader import Event
from shared.service.logging import get_logger
from shared.service.signatures import Caller
from shared.service.state import service_state

KEEP_ALIVE_S = 15.0
RETRY_MS = 1000
"""How long a browser waits before it comes back with Last-Event-ID."""
_log = get_logger("sse")


Source = Callable[[int], Awaitable[Sequence[Event]]]
"""after -> the events with id > after, in order; a bounded number at a time, none when there are none yet."""


async def event_stream(
    request: Request, source: Source, changes: Changes, *, after: int | None = None, keep_alive_s: float = KEEP_ALIVE_S,
    until: Callable[[Event], bool] | None = None, ended: Callable[[], bool] = lambda: False, caller: Caller | None = None,
) -> Response:  # fmt: skip
    """Events as they come, beginning after Last-Event-ID, else after `after`, else with the first.

    Who has heard everything that there will ever be is answered 204: a browser's EventSource comes back for ever to a stream that ends,
    and stays away after that.

    Args:
        changes: notified whenever `source` has more; where it has ended, the stream ends, and its reader takes up after the last event.
        until: the stream ends after the first event of which this holds.
        ended: whether no more will come than `source` has: the stream ends after that.
        caller: who listens. The stream ends, and tells nothing more, once its key or token counts no more: it was verified when it began.

    Raises:
        BadRequest: Last-Event-ID is not a number. Whatever `source` raises of what it has by now; what it raises later ends the stream, and
            its reader, who comes back, is answered with it. The answer itself: TooManyWaits, before it begins.
    """
    begin = _last_event_id(request, after or 0)
    stopping = service_state(request).stopping
    stopping.watch(changes)

    async def lines(news: _News | None) -> AsyncIterator[bytes]:
        last = begin
        yield format_sse_event(retry=RETRY_MS)
        # What is watched may end before the service does: a leader's term, whose book would stay as it was for ever.
        while not (stopping.is_set or changes.ended):
            try:
                news = news or await _read(source, changes, ended, last)
                if caller is not None and not await still_counts(request, caller):
                    return
            except GputError as error:  # too late to answer with it
                _log.warning("a stream of events ends", path=request.url.path, code=error.code, detail=error.detail)
                return
            (seen, over, events), news = news, None
            for event in events:
                yield _line(event)
                last = event.id
                if until is not None and until(event):
                    return
            if over and not events:
                return
            if not events and await changes.wait(seen, keep_alive_s) == seen and not (stopping.is_set or changes.ended):
                yield KEEPALIVE_COMMENT

    first = await _read(source, changes, ended, begin)
    if first.over and not first.events:
        return Response(status_code=204, headers={"cache-control": "no-store"})
    waits = nullcontext() if caller is None else service_state(request).waits.of(caller)
    return _Stream(lines(first), waits, {"cache-control": "no-store", "x-accel-buffering": "no"})


class _News(NamedTuple):
    """What a source had: `seen` is the version of its changes before that, `over` whether no more would come."""

    seen: int
    over: bool
    events: Sequence[Event]


async def _read(source: Source, changes: Changes, ended: Callable[[], bool], after: int) -> _News:
    seen, over = changes.version, ended()  # before reading: what comes in between is not missed
    return _News(seen, over, await source(after))


class _Stream(StreamingResponse):
    """It counts from its beginning to its end, also where nobody reads it to its end."""

    def __init__(
        self, lines: AsyncIterator[bytes], waits: AbstractContextManager[None], headers: Mapping[str, str]
    ) -> None:
        super().__init__(lines, media_type="text/event-stream", headers=headers)
        self._waits = waits

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """The answer."""
        with self._waits:
            await super().__call__(scope, receive, send)


def _line(event: Event) -> bytes:
    data = json.dumps(event.data, separators=(",", ":"), ensure_ascii=False, allow_nan=False)
    return format_sse_event(data_str=data, event=event.event, id=str(event.id))


def _last_event_id(request: Request, default: int) -> int:
    value = request.headers.get("last-event-id")
    if value is None:
        return default
    if not value.isascii() or not value.isdigit() or len(value) > 18:
        raise BadRequest(
            "Last-Event-ID is not the id of an event", code="invalid-event-id", remedy="Send the last `id:` received."
        )
    return int(value)
