"""Reads server-sent events. Knows no event's meaning and no web framework."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import Any

import httpx2

from shared.errors import Unavailable


@dataclass(frozen=True)
class Event:
    """One event: its place in the order (grows), its kind, and a JSON value."""

    id: int
    event: str
    data: Any


async def iter_sse(response: httpx2.Response) -> AsyncIterator[Event]:
    """The events of an answer, until it ends.

    Raises:
        Unavailable: code `peer-unreachable`; the connection broke or the answer is no event stream. Take up after the last id.
    """
    try:
        async for sent in httpx2.EventSource(response):
            if sent.data:  # a bare `retry:` or `id:` carries nothing
                yield Event(int(sent.id), sent.event, json.loads(sent.data))
    except (httpx2.TransportError, ValueError) as error:
        raise Unavailable(
            f"the event stream broke off: {type(error).__name__}",
            code="peer-unreachable",
            remedy="Connect again with Last-Event-ID; nothing is lost.",
        ) from error
