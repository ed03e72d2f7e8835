"""Command frames on their way in: whole whatever way they are cut, bounded together, and the newest is not what room is made of."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from starlette.requests import ClientDisconnect, Request

from gpu_agent.frame_bodies import FrameBodies
from shared.errors import Unavailable
from shared.service.middleware import BodyLimit

MOST, LIMIT = 1000, 600


class Sender:
    """A frame that comes piece by piece, and what became of it."""

    def __init__(self, frames: FrameBodies) -> None:
        self._pieces: asyncio.Queue[bytes | None] = asyncio.Queue()
        self.got, self.answered = b"", asyncio.Event()
        self.limit = BodyLimit(1 << 20)
        self.done = asyncio.create_task(self._read(frames))

    async def send(self, *pieces: bytes | None) -> None:
        """Pieces, then perhaps None: the end."""
        for piece in pieces:
            self._pieces.put_nowait(piece)
        for _ in range(10):
            await asyncio.sleep(0)

    async def gone(self) -> None:
        """Its connection is lost."""
        self._pieces.put_nowait(b"lost")
        await asyncio.wait([self.done])

    async def _receive(self) -> dict[str, Any]:
        piece = await self._pieces.get()
        if piece == b"lost":
            return {"type": "http.disconnect"}
        return {"type": "http.request", "body": piece or b"", "more_body": piece is not None}

    async def _read(self, frames: FrameBodies) -> None:
        asked = Request({"type": "http", "gput.body_limit": self.limit}, self._receive)
        async with frames.whole(asked, LIMIT) as self.got:
            await self.answered.wait()


async def refused(sender: Sender) -> str:
    with pytest.raises(Unavailable) as found:
        async with asyncio.timeout(10):
            await sender.done
    return found.value.code


async def test_a_frame_is_whole_and_counts_until_it_is_answered() -> None:
    frames = FrameBodies(MOST)
    one = Sender(frames)
    await one.send(b"ab", b"", b"cd", None)
    assert (one.got, frames.held, one.limit.bytes) == (b"abcd", 4, LIMIT)
    one.answered.set()
    await one.done
    assert frames.held == 0


async def test_whose_frame_has_come_for_longest_is_let_go_of() -> None:
    frames = FrameBodies(MOST)
    slow, slower = Sender(frames), Sender(frames)
    await slow.send(b"s" * 500)
    await slower.send(b"t" * 500)
    new = Sender(frames)
    await new.send(b"n" * 400, b"n" * 200, None)
    assert (new.got, frames.held) == (b"n" * 600, 600)  # of both: one was not enough
    new.answered.set()
    await new.done
    for one in (slow, slower):
        await one.send(b"more")
        assert await refused(one) == "too-many-frames"
    assert frames.held == 0


async def test_what_is_whole_is_answered_whatever_comes() -> None:
    frames = FrameBodies(MOST)
    whole = Sender(frames)
    await whole.send(b"w" * 600, None)
    new = Sender(frames)
    await new.send(b"n" * 400)
    assert frames.held == MOST
    await new.send(b"n")
    assert await refused(new) == "too-many-frames"
    assert (whole.got, frames.held) == (b"w" * 600, 600)


@pytest.mark.parametrize("let_go", [False, True])
async def test_what_is_lost_counts_no_more(let_go: bool) -> None:
    frames = FrameBodies(MOST)
    lost, other = Sender(frames), Sender(frames)
    await lost.send(b"l" * 500)
    if let_go:
        await other.send(b"o" * 501)
        assert frames.held == 501
    await lost.gone()
    with pytest.raises(ClientDisconnect):
        await lost.done
    assert frames.held == (501 if let_go else 0)
    await other.gone()
    assert (other.done.exception().__class__, frames.held) == (ClientDisconnect, 0)
