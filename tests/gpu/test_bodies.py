"""Copy records out of a body, however it is cut: the same records, and no more memory than they have bytes, about."""

from __future__ import annotations

import asyncio
import os
import tracemalloc
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from starlette.requests import ClientDisconnect, Request

from gpu_agent.bodies import BODY_LIMIT, FIRST_BYTES, MAX_PIECES, taken
from shared.claims.visit import MAX_CHUNK_BYTES
from shared.errors import BadRequest, LimitExceeded
from shared.service.bulk import BULK
from shared.service.middleware import BodyLimit
from shared.wire.copy import DATA, HEADER_BYTES, MAX_RECORDS_AT_ONCE, TAG_BYTES, CopyHeader, pack_header


def record(index: int, length: int) -> bytes:
    header = CopyHeader(kind=DATA, epoch=1, region=1, index=index, total=9, length=length)
    return pack_header(header) + bytes([index]) * (length + TAG_BYTES)


def request(pieces: Iterator[bytes]) -> Request:
    async def receive() -> dict[str, Any]:
        piece = next(pieces, None)
        return {"type": "http.request", "body": piece or b"", "more_body": piece is not None}

    return Request({"type": "http", "gput.body_limit": BodyLimit(1 << 20)}, receive)


class Lying:
    """A body that is read past the parser, as far as who reads it sees."""

    def __init__(self, body: bytes) -> None:
        self._body, self.left = memoryview(body), len(body)

    async def into(self, target: memoryview) -> None:
        assert len(target) <= self.left
        await asyncio.sleep(0)
        target[:], self._body = self._body[: len(target)], self._body[len(target) :]
        self.left = len(self._body)


async def records_of(pieces: Iterator[bytes], bulk: Lying | None = None) -> list[bytes]:
    found: list[bytes] = []

    async def take(one: bytes | memoryview) -> None:
        await asyncio.sleep(0)
        found.append(bytes(one))

    asked = request(pieces)
    if bulk is not None:
        asked.scope[BULK] = bulk
    await taken(asked, take)
    return found


@given(lengths=st.lists(st.integers(1, 2000), min_size=1, max_size=3), data=st.data())
@settings(max_examples=40, deadline=None)
async def test_however_a_body_is_cut_the_records_are_the_same(lengths: list[int], data: st.DataObject) -> None:
    whole = [record(index, length) for index, length in enumerate(lengths)]
    body, piece = b"".join(whole), data.draw(st.sampled_from([1, 7, 100, 1 << 20]))
    assert await records_of(body[at : at + piece] for at in range(0, len(body), piece)) == whole
    with pytest.raises(BadRequest, match="inside a record"):
        await records_of(iter([body[:-1]]))


@given(lengths=st.lists(st.integers(1, 2000), min_size=1, max_size=6), cut=st.integers(1, 300))
@settings(max_examples=60, deadline=None)
async def test_past_the_parser_the_records_are_the_same(lengths: list[int], cut: int) -> None:
    """Each in memory that nobody writes to while it is taken."""
    whole = [record(index, length) for index, length in enumerate(lengths)]
    body = b"".join(whole)
    assert await records_of(iter(()), Lying(body)) == whole
    with pytest.raises(BadRequest, match="inside a record"):
        await records_of(iter(()), Lying(body[: -(1 + cut % (len(whole[-1]) - 1))]))
    with pytest.raises(BadRequest, match="inside a record"):
        await records_of(iter(()), Lying(body + whole[0][: 1 + cut % (len(whole[0]) - 1)]))
    with pytest.raises(BadRequest, match="malformed"):
        await records_of(iter(()), Lying(body + bytes(2048)))


async def test_records_longer_than_the_memory_there_is_come_whole() -> None:
    whole = []
    for index, length in enumerate([FIRST_BYTES + 1, 10, MAX_CHUNK_BYTES, 5 * FIRST_BYTES, 1]):
        whole.append(record(index, length)[:HEADER_BYTES] + os.urandom(length + TAG_BYTES))
    assert await records_of(iter(()), Lying(b"".join(whole))) == whole


class Stated(Lying):
    """It says that it is long, and brings a little."""

    def __init__(self, body: bytes, length: int) -> None:
        super().__init__(body)
        self.left = length

    async def into(self, target: memoryview) -> None:
        length, self.left = self.left, len(self._body)
        if len(target) > self.left:
            raise ClientDisconnect
        await super().into(target)
        self.left = length - len(target)


@pytest.mark.parametrize("brought", [HEADER_BYTES, FIRST_BYTES - 1, 600_000])
async def test_a_length_that_is_only_stated_weighs_next_to_nothing(brought: int) -> None:
    long = Stated(record(0, MAX_CHUNK_BYTES)[:brought], 16 * MAX_CHUNK_BYTES)
    tracemalloc.start()
    try:
        with pytest.raises(ClientDisconnect):
            await records_of(iter(()), long)
        _, most = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert most < 3 * brought + 2 * FIRST_BYTES


async def test_what_is_too_long_is_refused_as_ever() -> None:
    long = Lying(b"")
    long.left = BODY_LIMIT + 1
    whole = record(0, 9)
    assert await records_of(iter([whole]), long) == [whole], "by way of the framework, which counts"


async def test_what_came_whole_before_a_fault_was_taken() -> None:
    whole, found = [record(index, 5000) for index in range(3)], []

    async def take(one: bytes | memoryview) -> None:
        found.append(bytes(one))

    asked = request(iter(()))
    asked.scope[BULK] = Lying(b"".join(whole) + b"GPTR")
    with pytest.raises(BadRequest, match="inside a record"):
        await taken(asked, take)
    assert found == whole


async def test_a_record_in_drops_weighs_what_it_has_of_bytes() -> None:
    whole = record(0, 500 * MAX_PIECES)
    drops = (bytes([byte]) for byte in whole)
    tracemalloc.start()
    try:
        assert await records_of(drops) == [whole]
        _, most = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert most < 6 * len(whole)


async def test_no_more_records_are_taken_than_a_request_carries() -> None:
    found: list[bytes] = []

    async def take(one: bytes | memoryview) -> None:
        found.append(bytes(one))

    sent = [record(index, 10) for index in range(MAX_RECORDS_AT_ONCE + 1)]
    with pytest.raises(LimitExceeded):
        await taken(request(iter(sent)), take)
    assert found == sent[:MAX_RECORDS_AT_ONCE], "a fault behind them undoes none"
    assert await records_of(iter(sent[:-1])) == sent[:-1]
