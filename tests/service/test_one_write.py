"""How many writes an answer costs: head and body leave together, and a head whose body is not there yet does not wait for it."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import uvicorn
from uvicorn.server import ServerState

from shared.service.connection import guarded
from shared.service.one_write import JOINED_BYTES

REQUEST = b"GET / HTTP/1.1\r\nhost: here\r\n\r\n"
Send = Callable[[dict[str, Any]], Awaitable[None]]


class Recorded(asyncio.Transport):
    """A connection's transport that keeps what is written."""

    def __init__(self) -> None:
        super().__init__()
        self.written: list[bytes] = []
        self.closed = False

    def write(self, data: bytes | bytearray | memoryview) -> None:
        assert not self.closed
        self.written.append(bytes(data))

    def close(self) -> None:
        self.closed = True

    def is_closing(self) -> bool:
        return self.closed

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        return default

    def resume_reading(self) -> None: ...


async def answered(answer: Callable[[Send], Awaitable[None]], request: bytes = REQUEST) -> Recorded:
    """The writes that one request's answer led to."""

    async def app(scope: Any, receive: Any, send: Send) -> None:
        await answer(send)

    transport, state = Recorded(), ServerState()
    config = uvicorn.Config(app, lifespan="off", log_config=None, ws="none")  # type: ignore[arg-type]
    config.load()
    protocol = guarded()(config=config, server_state=state, app_state={})
    protocol.connection_made(transport)
    protocol.data_received(request)
    await asyncio.gather(*state.tasks)
    await asyncio.sleep(0)
    protocol.connection_lost(None)
    return transport


def head(length: int) -> dict[str, Any]:
    return {"type": "http.response.start", "status": 200, "headers": [(b"content-length", str(length).encode())]}


def body(data: bytes, *, more: bool = False) -> dict[str, Any]:
    return {"type": "http.response.body", "body": data, "more_body": more}


async def test_a_whole_answer_is_one_write() -> None:
    async def answer(send: Send) -> None:
        await send(head(4))
        await send(body(b"body"))

    written = (await answered(answer)).written
    assert len(written) == 1
    assert written[0].startswith(b"HTTP/1.1 200 OK\r\n")
    assert written[0].endswith(b"\r\n\r\nbody")


async def test_a_head_whose_body_comes_later_is_not_held_back() -> None:

    async def answer(send: Send) -> None:
        await send(head(8))
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        await send(body(b"late", more=True))
        await send(body(b"last"))

    written = (await answered(answer)).written
    assert [piece.partition(b"\r\n\r\n")[2] for piece in written[:1]] == [b""]
    assert written[1:] == [b"late", b"last"]


async def test_a_long_body_is_not_copied_to_stand_behind_its_head() -> None:
    long = bytes(JOINED_BYTES + 1)

    async def answer(send: Send) -> None:
        await send(head(len(long)))
        await send(body(long))

    written = (await answered(answer)).written
    assert written[1:] == [long]


async def test_an_answer_without_a_body_is_sent_before_its_connection_closes() -> None:
    async def answer(send: Send) -> None:
        await send({"type": "http.response.start", "status": 204, "headers": [(b"connection", b"close")]})
        await send(body(b""))

    transport = await answered(answer)
    assert b"".join(transport.written).startswith(b"HTTP/1.1 204")
    assert transport.closed


async def test_a_body_that_fails_after_its_head_still_shows_the_head_and_ends_the_connection() -> None:
    async def answer(send: Send) -> None:
        await send(head(4))
        raise RuntimeError("no body")

    transport = await answered(answer)
    assert b"".join(transport.written).startswith(b"HTTP/1.1 200 OK")
    assert transport.closed
