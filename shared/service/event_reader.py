"""Reads server-sent events. Knows no event's meaning and no web framework."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass
from typing import Any

import httpx2

from shared.errors import Unavailable

NO_EVENT = "peer-unintelligible"


@dataclass(frozen=True)
class Event:
    """One event: its place in the order (grows), its kind, and a JSON object."""

    id: int
    event: str
    data: dict[str, Any]


class _Heard(httpx2.AsyncByteStream):
    """An answer's bytes as they come. Whoever looks for a sign of life is told of comments, too, which are no events."""

    def __init__(self, response: httpx2.Response, alive: Callable[[], None]) -> None:
        self._response, self._alive = response, alive

    async def __aiter__(self) -> AsyncIterator[bytes]:
        before = b"\n"
        async for piece in self._response.aiter_bytes():
            if b"\n:" in before + piece:
                self._alive()
            before = piece[-1:]
            yield piece


async def iter_sse(response: httpx2.Response, alive: Callable[[], None] = lambda: None) -> AsyncIterator[Event]:
    """The events of an answer, until it ends.

    Args:
        alive: called when a keep-alive came.

    Raises:
        Unavailable: code `peer-unreachable`; the connection broke: take up after the last id. Code `peer-unintelligible`: what came is no
            event stream, or none of our events, and would be none another time.
    """
    heard = httpx2.Response(200, headers=_kind(response), stream=_Heard(response, alive), request=response.request)
    try:
        async for sent in httpx2.EventSource(heard):
            if sent.data:  # a bare `retry:` or `id:` carries nothing
                yield _event(sent)
    except httpx2.SSEError:  # another content type, or an event without end
        raise _no_event("something that is no event stream, or an event beyond every bound") from None
    except (httpx2.TransportError, ValueError) as error:
        raise Unavailable(
            f"the event stream broke off: {type(error).__name__}",
            code="peer-unreachable",
            remedy="Connect again with Last-Event-ID; nothing is lost.",
        ) from error


def _kind(response: httpx2.Response) -> dict[str, str]:
    return {"content-type": response.headers.get("content-type", "")}


def _no_event(what: str) -> Unavailable:
    return Unavailable(
        f"the event stream brought {what}", code=NO_EVENT,
        remedy="Check that the address leads to the service itself and not to another program.",
    )  # fmt: skip


def _event(sent: httpx2.ServerSentEvent) -> Event:
    try:
        place, data = int(sent.id), json.loads(sent.data)
    except (ValueError, RecursionError):
        place, data = 0, None
    if not isinstance(data, dict):
        raise _no_event("something that is no event: a number as its id and a JSON object are wanted")
    return Event(place, sent.event, data)
