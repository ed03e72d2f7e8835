"""Copy records out of a body, however it is cut: the same records, and no more memory than they have bytes, about."""

from __future__ import annotations

import tracemalloc
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from starlette.requests import Request

from gpu_agent.bodies import MAX_PIECES, taken
from shared.errors import BadRequest
from shared.service.middleware import BodyLimit
from shared.wire.copy import DATA, TAG_BYTES, CopyHeader, pack_header


def record(index: int, length: int) -> bytes:
    header = CopyHeader(kind=DATA, epoch=1, region=1, index=index, total=9, length=length)
    return pack_header(header) + bytes([index]) * (length + TAG_BYTES)


def request(pieces: Iterator[bytes]) -> Request:
    async def receive() -> dict[str, Any]:
        piece = next(pieces, None)
        return {"type": "http.request", "body": piece or b"", "more_body": piece is not None}

    return Request({"type": "http", "gput.body_limit": BodyLimit(1 << 20)}, receive)


async def records_of(pieces: Iterator[bytes]) -> list[bytes]:
    found: list[bytes] = []

    async def take(one: bytes) -> None:
        found.append(one)

    await taken(request(pieces), take)
    return found


@given(lengths=st.lists(st.integers(1, 2000), min_size=1, max_size=3), data=st.data())
@settings(max_examples=40, deadline=None)
async def test_however_a_body_is_cut_the_records_are_the_same(lengths: list[int], data: st.DataObject) -> None:
    whole = [record(index, length) for index, length in enumerate(lengths)]
    body, piece = b"".join(whole), data.draw(st.sampled_from([1, 7, 100, 1 << 20]))
    assert await records_of(body[at : at + piece] for at in range(0, len(body), piece)) == whole
    with pytest.raises(BadRequest, match="inside a record"):
        await records_of(iter([body[:-1]]))


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
