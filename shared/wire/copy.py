"""The copy record: one sealed piece of what a visit brings to the holder's port. Knows no key and no HTTP.

Order: the grant's data chunks; the membership proof in pieces of `chunk_bytes`, the last one shorter, where it is too long to ride in the
closing record; the closing record. `total` counts all but the closing record, whose index it is.

Bytes: header (32) ‖ ciphertext ‖ tag (16). AES-256-GCM under the visit's H2D key; the IV is counted by both ends and never sent:
record `index` uses message counter index + 1. AAD = header ‖ SHA-256(CBOR["gput/copy", session, visit,
holder, region, epoch, "h2d"]), so index, total and everything the grant says are bound.

Where the grant says so, every record is of several chains (`shared.crypto.chains`), each with its ciphertext and its tag; the header
counts those beyond the first.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from typing import Annotated, Literal

from pydantic import Field

from shared.canonical import cbor_bytes, sha256
from shared.claims.program import HexSha256
from shared.claims.visit import MAX_CHAINS, MAX_CHUNK_BYTES, Grant, VisitId
from shared.errors import BadRequest
from shared.wire.base import Secret32, Wire

HEADER = struct.Struct("<4sBBHIIIII4x")  # magic, version, kind, more chains, epoch, region, index, total, length
HEADER_BYTES = HEADER.size
_PAD_BYTES = 4
MAGIC = b"GPTR"
VERSION = 1
DATA, CLOSING, PROOF = 0, 1, 2
TAG_BYTES = 16
MAX_TAGS_BYTES = TAG_BYTES * MAX_CHAINS
MAX_INLINE_PROOF = 64 * 1024
"""A membership proof up to this long rides in the closing record: a short visit must not pay for one more round trip."""
MAX_CLOSING_BYTES = MAX_INLINE_PROOF + 4096
MAX_RECORDS_AT_ONCE = 16
"""Copy records that one request may bring, end to end."""
MAX_PORT_WAIT_MS = 10_000
"""How long a request may wait for the GPU to appear at its port."""
SERVER_TIMING, PORT_TIMING = "server-timing", "port"
"""Where an answer says for how long it did (W3C Server Timing): header, and name of the metric, whose `dur` is in milliseconds."""


@dataclass(slots=True)  # not frozen: that makes one, for each record at both ends, three times as slow
class CopyHeader:
    """`length` is the plaintext's length in bytes; `index` runs 0..total-1 for data and proof, equals total for the closing record.
    `more_chains`: those beyond the first."""

    kind: int
    epoch: int
    region: int
    index: int
    total: int
    length: int
    more_chains: int = 0

    @property
    def tags_bytes(self) -> int:
        """What all chains' tags take."""
        return TAG_BYTES * (1 + self.more_chains)


def pack_header(header: CopyHeader) -> bytes:
    """32 header bytes."""
    return HEADER.pack(
        MAGIC, VERSION, header.kind, header.more_chains, header.epoch, header.region, header.index, header.total,
        header.length,
    )  # fmt: skip


def parse_record(record: bytes | memoryview) -> tuple[CopyHeader, bytes, memoryview]:
    """(header, header bytes, each chain's ciphertext ‖ tag). Raises: BadRequest on any layout fault, before any key is touched."""
    view = memoryview(record)
    if len(view) < HEADER_BYTES + TAG_BYTES:
        raise BadRequest(
            f"copy record of {len(view)} bytes is shorter than header and tag", code="malformed-copy-record"
        )
    raw = bytes(view[:HEADER_BYTES])
    magic, version, kind, more_chains, epoch, region, index, total, length = HEADER.unpack(raw)
    header = CopyHeader(kind, epoch, region, index, total, length, more_chains)
    if (
        magic != MAGIC
        or version != VERSION
        or more_chains >= MAX_CHAINS
        or kind not in (DATA, CLOSING, PROOF)
        or raw[-_PAD_BYTES:] != bytes(_PAD_BYTES)
    ):
        raise BadRequest("copy record header is malformed", code="malformed-copy-record")
    if len(view) != HEADER_BYTES + length + header.tags_bytes:
        raise BadRequest("copy record length does not match its header", code="malformed-copy-record")
    return header, raw, view[HEADER_BYTES:]


def record_length(head: bytes) -> int:
    """Bytes of the copy record that begins with these `HEADER_BYTES`. Raises: BadRequest: no record begins so."""
    magic, version, _, more_chains, _, _, _, _, length = HEADER.unpack(head)
    if magic != MAGIC or version != VERSION or more_chains >= MAX_CHAINS or length > MAX_CHUNK_BYTES:
        raise BadRequest("copy record header is malformed", code="malformed-copy-record")
    return HEADER_BYTES + int(length) + TAG_BYTES * (1 + int(more_chains))


def copy_context(grant: Grant) -> bytes:
    """The 32 bytes that bind a record to its grant."""
    return sha256(
        cbor_bytes(["gput/copy", grant.session, grant.visit, grant.holder, grant.region, grant.epoch, grant.direction])
    )


def tags_bytes(grant: Grant) -> int:
    """What the tags of one of its records take."""
    return TAG_BYTES * grant.chains


class Closing(Wire):
    """Plaintext of the closing record (deterministic CBOR). `salt`: keys the commitment (`shared.protocol.membership`), fresh.

    `dataset_salt` is that of the approved dataset's tree (`shared.protocol.membership`); `proof`: the multi-proof, or the empty string
    where it came in records of its own. `chunks` counts data chunks only.
    """

    visit: VisitId
    chunks: int = Field(ge=1)
    records: int = Field(ge=1)
    length: int = Field(ge=1)
    salt: Secret32
    commitment: HexSha256
    dataset_salt: Secret32
    proof: Annotated[bytes, Field(max_length=MAX_INLINE_PROOF)]


class StagedAck(Wire):
    """Staging's answer to a copy record: it lies there, unread. `received`: bytes that lie there for this visit."""

    is_: Literal["staged"] = Field(default="staged", alias="is")
    index: int
    received: int


@dataclass(slots=True)
class Copied:
    """What the copy engine says of a record that it took: to be told as `CopyAck`, or by a doorbell. `received`: bytes of records so far;
    `published` is true from the valid closing record on."""

    index: int
    received: int
    published: bool


class CopyAck(Wire):
    """The GPU's answer to a copy record, over HTTP. Its fields are those of `Copied`."""

    is_: Literal["copied"] = Field(default="copied", alias="is")
    index: int
    received: int
    published: bool
