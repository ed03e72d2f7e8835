"""The middleware by itself: what comes whole is signed, what comes in pieces leaves piece by piece, and nothing waits that need not."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Sequence
from typing import Any
from unittest.mock import AsyncMock

import pytest
from starlette.types import Message, Receive, Scope, Send

from shared.canonical import sha256
from shared.crypto.signing import PartyKey
from shared.service import answer_signing
from shared.service.answer_signing import LONG_BODY, SignedAnswers
from shared.service.signatures import VERIFIED
from shared.service.signed_answers import ACCEPT_ANSWER, AnswerParts, check_answer

IDENTITY = PartyKey.generate()
ASKED = "gput=:" + "A" * 86 + "==:"
ASKING = ((b"accept-signature", ACCEPT_ANSWER.encode()),)


def head(status: int = 200, **headers: str) -> Message:
    named = [(name.replace("_", "-").encode(), value.encode()) for name, value in headers.items()]
    return {"type": "http.response.start", "status": status, "headers": named}


def body(content: bytes = b"", more: bool = False) -> Message:
    return {"type": "http.response.body", "body": content, "more_body": more}


async def answered(
    *messages: Message, method: str = "GET", headers: Sequence[tuple[bytes, bytes]] = ASKING, verified: bool = True
) -> tuple[dict[str, str], list[Message]]:
    """The head's headers as they left, and all that left."""
    left: list[Message] = []

    async def send(message: Message) -> None:
        left.append(message)

    async def app(_scope: Scope, _receive: Receive, send: Send) -> None:
        for message in messages:
            await send(message)

    async def receive() -> Message:
        raise AssertionError("nobody reads")

    scope: dict[str, Any] = {"type": "http", "method": method, "headers": list(headers)}
    scope |= {VERIFIED: ASKED} if verified else {}
    await SignedAnswers(app, key=IDENTITY, clock=lambda: 7.9)(scope, receive, send)
    return {name.decode(): value.decode("latin-1") for name, value in left[0].get("headers", ())}, left


@pytest.mark.parametrize("content", [b"", b"{}", bytes(LONG_BODY + 1)], ids=["none", "short", "long"])
async def test_what_comes_whole_is_signed(content: bytes) -> None:
    length = {"content_length": str(len(content)), "content_type": "application/json", "etag": '"1"'}
    headers, left = await answered(head(200, **length), body(content))
    check_answer(AnswerParts(200, headers, ASKED), content, key=IDENTITY.public, what="it")
    assert ";created=7;" in headers["signature-input"]
    assert [message["type"] for message in left] == ["http.response.start", "http.response.body"]
    assert left[1]["body"] == content


@pytest.mark.parametrize("status", [204, 304])
@pytest.mark.parametrize("start", [{}, {"headers": ()}], ids=["left out", "none"])
async def test_no_content_is_signed_as_such(status: int, start: Message) -> None:
    """An application may leave out what it has none of: headers, a body, that no more of it comes."""
    headers, _ = await answered(
        {"type": "http.response.start", "status": status, **start}, {"type": "http.response.body"}
    )
    check_answer(AnswerParts(status, headers, ASKED), b"", key=IDENTITY.public, what="it")


async def test_a_field_that_is_repeated_is_signed_as_its_values_together() -> None:
    """And leaves as it came: only what is signed is joined, in its order, whatever the case of its name."""
    sent = [
        (b"Content-Length", b"2"), (b"ETag", b'"2"'), (b"location", b"/caf\xe9"), (b"etag", b'"1"'), (b"etag", b'"3"'),
    ]  # fmt: skip
    headers, left = await answered({"type": "http.response.start", "status": 200, "headers": sent}, body(b"{}"))
    assert left[0]["headers"][: len(sent)] == sent
    signed = {name: headers[name] for name in ("content-digest", "signature-input", "signature")}
    said = {"etag": '"2", "1", "3"', "location": "/caf\xe9", **signed}
    check_answer(AnswerParts(200, said, ASKED), b"{}", key=IDENTITY.public, what="it")


@pytest.mark.parametrize("first", [True, False])
async def test_one_of_several_fields_that_ask_is_enough(first: bool) -> None:
    other = ((b"accept-signature", b'sig=();tag="gput/1"'), (b"accept", b"*/*"))
    headers, _ = await answered(head(204), body(), headers=(*ASKING, *other) if first else (*other, *ASKING))
    assert "signature" in headers


async def test_a_long_body_is_hashed_by_another_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    """On the loop's own every other request would wait for it."""
    by: list[int] = []

    def hashed(content: bytes) -> bytes:
        by.append(threading.get_ident())
        return sha256(content)

    monkeypatch.setattr(answer_signing, "sha256", hashed)
    for length in (LONG_BODY, LONG_BODY + 1):
        await answered(head(content_length=str(length)), body(bytes(length)))
    here = threading.get_ident()
    assert [one == here for one in by] == [True, False]


async def test_what_is_no_request_or_sends_no_body_goes_by() -> None:
    """A life's messages, and a file that the server itself reads: of neither there is anything to sign."""
    seen: list[Scope] = []

    async def app(scope: Scope, _receive: Receive, _send: Send) -> None:
        seen.append(scope)

    await SignedAnswers(app, key=IDENTITY, clock=lambda: 7)({"type": "lifespan"}, asyncio.Event().wait, AsyncMock())  # type: ignore[arg-type]
    assert seen == [{"type": "lifespan"}]
    headers, _ = await answered({"type": "http.response.start", "status": 200}, body())
    assert headers == {}
    file = {"type": "http.response.pathsend", "path": "model"}
    headers, left = await answered(head(200, content_length="3"), file)
    assert (headers, left[1:]) == ({"content-length": "3"}, [file])


async def test_a_file_in_pieces_is_not_signed_and_loses_nothing() -> None:
    pieces = [body(b"ab", more=True), body(b"c")]
    headers, left = await answered(head(206, content_length="3", etag='"d"'), *pieces)
    assert headers == {"content-length": "3", "etag": '"d"'}
    assert left[1:] == pieces


async def test_a_stream_s_head_leaves_before_its_first_piece() -> None:
    left: list[Message] = []

    async def send(message: Message) -> None:
        left.append(message)

    async def app(_scope: Scope, _receive: Receive, send: Send) -> None:
        await send(head(200, content_type="text/event-stream"))
        assert len(left) == 1, "or whoever watches would not know that it is heard"
        await send(body(b"data: 1\n\n", more=True))
        await send(body())

    scope: dict[str, Any] = {"type": "http", "method": "GET", "headers": list(ASKING), VERIFIED: ASKED}
    await SignedAnswers(app, key=IDENTITY, clock=lambda: 7)(scope, asyncio.Event().wait, send)  # type: ignore[arg-type]
    assert [message["type"] for message in left] == ["http.response.start", "http.response.body", "http.response.body"]
    assert left[0]["headers"] == [(b"content-type", b"text/event-stream")]


@pytest.mark.parametrize(
    ("method", "headers", "verified"),
    [
        ("GET", (), True), ("GET", ((b"x-asks", ACCEPT_ANSWER.encode()),), True),
        ("GET", ((b"accept-signature", b'sig=();tag="gput/1"'),), True), ("GET", ASKING, False), ("HEAD", ASKING, True),
    ],
    ids=["not asked", "asked elsewhere", "asked for another", "not verified", "only the head"],
)  # fmt: skip
async def test_everything_else_goes_by_as_it_is(
    method: str, headers: Sequence[tuple[bytes, bytes]], verified: bool
) -> None:
    messages = [head(200, content_length="2"), body(b"{}")]
    said, left = await answered(*messages, method=method, headers=headers, verified=verified)
    assert (said, left) == ({"content-length": "2"}, messages)
