"""The host's certificate table: what fits is taken apart, everything else is refused before any certificate is read."""

from __future__ import annotations

from uuid import UUID

import pytest

from shared.attestation.snp_verifier import SnpEndorsements
from shared.errors import BadRequest
from shared.wire.snp_certificates import ARK, ASK, CRL, ENTRY, VCEK, VLEK, parse_certificate_table
from tests.attestation.snp_world import table

OTHER = UUID("ecae0c0f-9502-43b1-afa2-0ae2e0d565b6")
FULL = table({VCEK: b"leaf", ASK: b"issuer", ARK: b"root", CRL: b"list", OTHER: b"anything"})
END = bytes(ENTRY.size)


def entry(guid: UUID = VCEK, offset: int = 2 * ENTRY.size, length: int = 4) -> bytes:
    return ENTRY.pack(guid.bytes, offset, length)


def test_a_full_table() -> None:
    parsed = parse_certificate_table(FULL)
    assert [parsed.get(guid) for guid in (VCEK, VLEK, ASK, OTHER)] == [b"leaf", b"", b"issuer", b"anything"]
    endorsements = SnpEndorsements.of(parsed)
    assert endorsements == SnpEndorsements(
        (b"leaf",), (b"issuer",), (b"list",)
    )  # the root that a host names counts for nothing


def test_no_table_and_an_empty_one() -> None:
    for data in (b"", END, END + bytes(100)):
        assert not parse_certificate_table(data).entries


def test_guids_are_written_in_the_order_of_their_text() -> None:
    assert FULL[:4].hex() == "63da758d"


def test_entries_may_lie_in_any_order_and_on_pages() -> None:
    data = entry(ASK, 4096, 3) + entry(VCEK, 200, 4) + END
    data = data.ljust(200, b"\0") + b"leaf" + bytes(4096 - 204) + b"ask"
    parsed = parse_certificate_table(data)
    assert (parsed.get(VCEK), parsed.get(ASK)) == (b"leaf", b"ask")


@pytest.mark.parametrize(
    "data",
    [
        b"x",
        entry() + b"leaf",  # no terminator
        entry()[:-1],
        entry() + b"leaf" + bytes(19),
        END[:16] + b"\x01" + bytes(7),  # a terminator that is not zero
        entry() + END + b"leav!",  # a byte too many
        entry() + END + b"lea",  # a byte too few
        entry(offset=0) + END + b"leaf",  # over the table
        entry(offset=47) + END + b"leaf",
        entry(length=0) + END,
        entry(length=1 << 31) + END + b"leaf",
        entry(offset=(1 << 32) - 1) + END + b"leaf",
        entry(offset=72) + entry(offset=76) + END + b"leafleaf",  # a GUID twice
        entry(offset=72) + entry(ASK, offset=75) + END + b"leafleaf",  # overlapping
        entry(offset=72) + entry(ASK, offset=77) + END + b"leaf!ask4",  # bytes between
        b"".join(entry(UUID(int=number + 1), 18 * ENTRY.size + 4 * number) for number in range(17))
        + END
        + b"leaf" * 17,
        END + bytes(64 * 1024),
    ],
    ids=range(17),
)
def test_a_table_that_does_not_fit_is_refused(data: bytes) -> None:
    with pytest.raises(BadRequest) as caught:
        parse_certificate_table(data)
    assert caught.value.code == "malformed-certificate-table"
