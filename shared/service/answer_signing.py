"""Around a whole application: signs each whole answer to a verified request that asked for it. Knows no route, and no key but its own.

Streams go by unsigned: who reads one has another way to judge it (docs/client.md). So do answers to a request whose signature was not
verified, first of all those that say so: they would be answers to whatever somebody else put that signature on.
"""

from __future__ import annotations

import asyncio
from typing import Final

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from shared.canonical import sha256
from shared.service.clock import Clock
from shared.service.signatures import VERIFIED, RequestKey
from shared.service.signed_answers import ACCEPT_HEADER, AnswerParts, asks, signed_fields

LONG_BODY: Final = 1024 * 1024
"""Bytes; a longer body is hashed by another thread."""
_ACCEPT: Final = ACCEPT_HEADER.encode()
_BODILESS: Final = (204, 304)


class SignedAnswers:
    """Who does not ask pays a look at the names of its headers. `key`: the identity that callers have attested."""

    def __init__(self, app: ASGIApp, *, key: RequestKey, clock: Clock) -> None:
        self._app, self._key, self._clock = app, key, clock

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """One request."""
        if scope["type"] == "http" and scope["method"] != "HEAD" and _asking(scope):
            send = _Signing(scope, send, self._key, self._clock)
        await self._app(scope, receive, send)


class _Signing:
    """The way of one answer: its head waits for its body, where that comes whole."""

    def __init__(self, scope: Scope, send: Send, key: RequestKey, clock: Clock) -> None:
        self._scope, self._send, self._key, self._clock = scope, send, key, clock
        self._head: Message | None = None

    async def __call__(self, message: Message) -> None:
        if message["type"] == "http.response.start" and VERIFIED in self._scope and _is_whole(message):
            self._head = message
            return
        head, self._head = self._head, None
        if head is not None:
            if message["type"] == "http.response.body" and not message.get("more_body", False):
                await self._sign(head, message.get("body", b""))
            await self._send(head)
        await self._send(message)

    async def _sign(self, head: Message, body: bytes) -> None:
        digest = sha256(body) if len(body) <= LONG_BODY else await asyncio.to_thread(sha256, body)
        headers: dict[str, str] = {}
        for raw_name, raw_value in head.get("headers", ()):
            name, value = raw_name.decode("latin-1").lower(), raw_value.decode("latin-1")
            headers[name] = f"{headers[name]}, {value}" if name in headers else value
        parts = AnswerParts(head["status"], headers, self._scope[VERIFIED])
        added = signed_fields(parts, digest, key=self._key, created=int(self._clock()))
        head["headers"] = [
            *head.get("headers", ()),
            *((name.encode(), value.encode()) for name, value in added.items()),
        ]


def _asking(scope: Scope) -> bool:
    """A field that is repeated says what its lines say together (RFC 9110 section 5.2)."""
    return any(name == _ACCEPT and asks(value) for name, value in scope["headers"])


def _is_whole(head: Message) -> bool:
    """By its head an answer has an end. A file has one, too, but comes in pieces."""
    return head["status"] in _BODILESS or any(name.lower() == b"content-length" for name, _ in head.get("headers", ()))
