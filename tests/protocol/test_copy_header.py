"""A copy record's header is read as it was packed, or the record is refused before any key is touched."""

from __future__ import annotations

import pytest

from shared.claims.visit import MAX_CHAINS
from shared.errors import BadRequest
from shared.wire.copy import DATA, HEADER_BYTES, TAG_BYTES, CopyHeader, pack_header, parse_record

HEADER = CopyHeader(DATA, epoch=1, region=2, index=3, total=4, length=5)
REST = bytes(HEADER.length + TAG_BYTES)


def test_a_header_comes_as_it_was_packed() -> None:
    raw = pack_header(HEADER)
    assert parse_record(raw + REST) == (HEADER, raw, memoryview(REST))


@pytest.mark.parametrize(
    "at", [0, 3, 4, 5, 6, 7, *range(24, 28), *range(HEADER_BYTES - 4, HEADER_BYTES)], ids=lambda at: f"byte {at}"
)
def test_a_byte_that_may_have_one_value_only_has_no_other(at: int) -> None:
    """Magic, version, kind, chains, length, and the last four, which say nothing."""
    raw = bytearray(pack_header(HEADER))
    raw[at] ^= 0x80
    with pytest.raises(BadRequest, match=r"malformed|does not match"):
        parse_record(bytes(raw) + REST)


def test_a_record_has_at_most_so_many_chains_and_room_for_each_tag() -> None:
    most = pack_header(CopyHeader(DATA, 1, 2, 3, 4, 5, MAX_CHAINS - 1))
    parse_record(most + bytes(5 + TAG_BYTES * MAX_CHAINS))
    for record in (
        most + REST,
        pack_header(CopyHeader(DATA, 1, 2, 3, 4, 5, MAX_CHAINS)) + bytes(5 + TAG_BYTES * (MAX_CHAINS + 1)),
    ):
        with pytest.raises(BadRequest):
            parse_record(record)
