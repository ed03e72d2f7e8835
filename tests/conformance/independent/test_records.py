"""Copy records: the holder's opened by the page, and the page's taken by the GPU's reader. Knows no port."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import cbor2
import pytest
from blake3 import blake3
from hypothesis import given, settings
from hypothesis import strategies as st

from data_holder.sealing import Membership, RecordSealer
from shared.claims.visit import MAX_CHAINS, Grant
from shared.crypto.chains import OpeningChains
from shared.crypto.secret import Secret
from shared.crypto.visit_key import VisitKey
from shared.wire.codec import decode
from shared.wire.copy import Closing, copy_context, parse_record
from tests.conformance.independent import page_sealed, page_signed
from tests.conformance.independent.test_sealed import SESSION, VISIT, grant

KEY, MASK, CHANNEL = bytes(range(32)), bytes(range(100, 112)), 2**31 + 5
SALT, DATASET_SALT = b"v" * 32, b"d" * 32
DATA, CLOSING, PROOF = 0, 1, 2


def visit(chains: int) -> page_sealed.Visit:
    return page_sealed.Visit(KEY, MASK, CHANNEL, (SESSION, VISIT, "north", 4, 9), chains)


def sealed(of: Grant, records: bytes, proof: bytes) -> list[bytes]:
    """All copy records of a visit as a data holder makes them."""

    def read(_: object, offset: int, into: memoryview) -> None:
        into[:] = records[offset : offset + len(into)]

    dataset = SimpleNamespace(record_bytes=of.record_bytes, lying=lambda *_: None, read_slice=read)
    membership = Membership(Secret(DATASET_SALT), proof, bytes(32 * of.records))
    sealer = RecordSealer(of, VisitKey(KEY, MASK, 1, CHANNEL), cast(Any, dataset), membership, SALT)
    buffer = bytearray(sealer.buffer_bytes)
    return [bytes(sealer.seal_next(buffer).data) for _ in range(sealer.total + 1)]


@pytest.mark.parametrize("chains", [1, 2, 3, MAX_CHAINS])
@pytest.mark.parametrize(
    "proof", [b"p" * 96, b"p" * (64 * 1024), b"p" * (64 * 1024 + 32)], ids=["short", "64 KiB", "longer"]
)
def test_a_holders_records_open_by_the_page(chains: int, proof: bytes) -> None:
    of = grant(record_bytes=1000, chunk_bytes=3008, more_chains=chains - 1)
    records = bytes(at % 251 for at in range(8000))
    opened = [visit(chains).open(record) for record in sealed(of, records, proof)]
    pieces = [proof[at : at + 3008] for at in range(0, len(proof), 3008)] if len(proof) > 64 * 1024 else []
    chunks = [records[at : at + 3008] for at in range(0, 8000, 3008)]
    total = len(chunks) + len(pieces)
    kinds = [DATA] * len(chunks) + [PROOF] * len(pieces)
    expected = [(kind, at, total, plain) for at, (kind, plain) in enumerate(zip(kinds, chunks + pieces, strict=True))]
    assert opened[:-1] == expected
    kind, index, stated, plain = opened[-1]
    assert (kind, index, stated) == (CLOSING, total, total)
    assert plain == page_signed.cbor({
        "visit": VISIT, "chunks": 3, "records": 8, "length": 8000, "salt": SALT, "dataset_salt": DATASET_SALT,
        "commitment": blake3(bytes(32 * 8), key=SALT).hexdigest(), "proof": b"" if pieces else proof,
    })  # fmt: skip
    assert cbor2.loads(plain)["visit"] == VISIT


@given(
    st.integers(1, MAX_CHAINS), st.lists(st.tuples(st.sampled_from([DATA, PROOF]), st.binary(max_size=700)), max_size=4)
)
@settings(max_examples=50)
def test_the_gpus_reader_takes_records_made_by_the_page(chains: int, plain: list[tuple[int, bytes]]) -> None:
    of = grant(more_chains=chains - 1)
    opening = OpeningChains(KEY, of.chains, label="t", iv_mask=MASK, channel_counter=CHANNEL)
    for index, (kind, data) in enumerate(plain):
        header, raw, rest = parse_record(visit(chains).seal(kind, index, len(plain), data))
        assert (header.kind, header.index, header.total, header.length) == (kind, index, len(plain), len(data))
        assert (header.epoch, header.region, header.more_chains) == (9, 4, chains - 1)
        assert opening.open(rest, raw + copy_context(of)) == data


def test_a_closing_record_of_another_implementation_is_read() -> None:
    said = {
        "visit": VISIT, "chunks": 1, "records": 8, "length": 64, "salt": SALT, "commitment": "ab" * 32,
        "dataset_salt": DATASET_SALT, "proof": b"p" * 64,
    }  # fmt: skip
    assert decode(Closing, page_signed.cbor(said)).model_dump() == said
