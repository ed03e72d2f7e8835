"""Reads server-sent events. Knows no event's meaning and no web framework."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
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


async def iter_sse(response: httpx2.Response) -> AsyncIterator[Event]:
    """The events of an answer, until it ends.

    Raises:
        Unavailable: code `peer-unreachable`; the connection broke or the answer is no event stream: take up after the last id. Code
            `peer-unintelligible`: what came is none of our events, and would be none another time.
    """
    try:
        async for sent in httpx2.EventSource(response):
            if sent.data:  # a bare `retry:` or `id:` carries nothing
                yield _event(sent)
    except (httpx2.TransportError, ValueError) as error:
        raise Unavailable(
            f"the event stream broke off: {type(error).__name__}",
            code="peer-unreachable",
            remedy="Connect again with Last-Event-ID; nothing is lost.",
        ) from error


def _event(sent: httpx2.ServerSentEvent) -> Event:
    try:
        place, data = int(sent.id), json.loads(sent.data)
    except (ValueError, RecursionError):
        place, data = 0, None
    if not isinstance(data, dict):
        raise Unavailable(
            "the event stream brought something that is no event: a number as its id and a JSON object are wanted", code=NO_EVENT,
            remedy="Check that the address leads to the service itself and not to another program.",
        )  # fmt: skip
    return Event(place, sent.event, data)
