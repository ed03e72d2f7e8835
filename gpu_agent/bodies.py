"""Copy records out of a request's body, as they arrive: one is taken while the next is on its way. Knows no port, and of a record its
header's length.

Several records in one body cost one round trip; a record is handed on once it is whole, in the order of the bytes. What was taken before
a fault stays taken: whoever sends them all again sends byte-identical repeats.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from typing import Final, TypeVar

from starlette.requests import Request

from shared.claims.visit import MAX_CHUNK_BYTES
from shared.errors import BadRequest, LimitExceeded
from shared.service.bulk import BULK, BulkBody
from shared.wire.copy import HEADER_BYTES, MAX_RECORDS_AT_ONCE, MAX_TAGS_BYTES, record_length

RECORD_LIMIT: Final = HEADER_BYTES + MAX_CHUNK_BYTES + MAX_TAGS_BYTES
BODY_LIMIT: Final = MAX_RECORDS_AT_ONCE * RECORD_LIMIT
MAX_PIECES: Final = 256
"""Pieces of a record that are kept apart: what is in many drops weighs a hundred times its bytes, and nobody had to sign it."""
FIRST_BYTES: Final = 256 * 1024
"""Memory for a record of which nothing but its head has arrived."""
CUT: Final = "the body ends inside a record"
T = TypeVar("T")


async def taken(request: Request, take: Callable[[bytes | memoryview], Awaitable[T]]) -> T:
    """What `take` says of the last record; it takes one after another, each while the next is on its way, and keeps none of their memory.

    Raises:
        BadRequest `malformed-copy-record`: no records. LimitExceeded: too long a body, or too many records.
            And what `take` raises: nothing behind is taken.
    """
    request.scope["gput.body_limit"].bytes = BODY_LIMIT
    under_way: asyncio.Future[T] | None = None
    try:
        count = 0
        async for record in _records_of(request):
            count += 1
            if count > MAX_RECORDS_AT_ONCE:
                raise LimitExceeded(
                    f"a request carries at most {MAX_RECORDS_AT_ONCE} copy records", remedy="Send the rest in another."
                )
            if under_way is not None:
                await under_way
            under_way = asyncio.ensure_future(take(record))
        if under_way is None:
            raise _malformed("the body is empty")
        return await under_way
    finally:
        if under_way is not None and not under_way.done():
            await asyncio.wait([under_way])  # what was begun is not left behind to run beside whatever comes next


def _records_of(request: Request) -> AsyncIterator[bytes | memoryview]:
    bulk: BulkBody | None = request.scope.get(BULK)
    if bulk is None or bulk.left > BODY_LIMIT:
        return _records(request.stream())
    return _received(bulk)


async def _received(bulk: BulkBody) -> AsyncIterator[memoryview]:
    """Each record in the memory that it arrived in, which is written to again with the next but one."""
    if bulk.left < HEADER_BYTES:
        raise _malformed(CUT)
    more, memory = HEADER_BYTES, deque((bytearray(), bytearray()))
    head = bytearray(HEADER_BYTES)
    await bulk.into(memoryview(head))
    while more:
        length = record_length(bytes(head))
        behind = bulk.left - (length - HEADER_BYTES)
        if behind < 0:
            raise _malformed(CUT)
        more = HEADER_BYTES if behind >= HEADER_BYTES else 0  # the next record's head comes along
        whole = memory[0] = await _filled(bulk, memory, head, length + more)
        memory.rotate()
        head[:more] = whole[length : length + more]
        yield memoryview(whole)[:length]
    if bulk.left:
        raise _malformed(CUT)


async def _filled(bulk: BulkBody, memory: Sequence[bytearray], head: bytearray, end: int) -> bytearray:
    """`head` and what follows it, `end` bytes in all, in the first memory, or in more where that is too small: as much as the record before
    has filled, else hardly ever more than four times what has arrived, for to state a length costs a stranger nothing."""
    here, before = memory
    at = len(head)
    while True:
        if len(here) < end:
            larger = bytearray(min(end, max(FIRST_BYTES, 4 * len(here), len(before))))
            memoryview(larger)[: len(here)] = here  # a view: to assign to a bytearray's slice may change its length
            here = larger
        here[: len(head)] = head
        until = min(end, len(here))
        await bulk.into(memoryview(here)[at:until])
        at = until
        if at == end:
            return here


async def _records(pieces: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
    parts: list[bytes | memoryview] = []
    held, due = 0, HEADER_BYTES
    async for piece in pieces:
        rest = memoryview(piece)
        while rest:
            part, rest = rest[: due - held], rest[due - held :]
            parts.append(part)
            held += len(part)
            if held < due:
                parts = parts if len(parts) < MAX_PIECES else [b"".join(parts)]
                break
            if due == HEADER_BYTES:
                head = b"".join(parts)
                parts, due = [head], record_length(head)
            else:
                yield b"".join(parts)
                parts, held, due = [], 0, HEADER_BYTES
    if held:
        raise _malformed(CUT)


def _malformed(why: str) -> BadRequest:
    return BadRequest(f"no copy records: {why}", code="malformed-copy-record")
