"""The certificate table that a host hands to an SEV-SNP guest beside a report: entries by GUID. Knows no certificate and no key.

GHCB standardization (AMD 56421) 4.1.8.1; what `auxblob` of configfs-tsm holds for `sev_guest`. Nothing in it is signed as a whole:

    entry 24: GUID 16 (in the order it is written), offset u32, length u32 (little-endian); …; 24 zero bytes; then the contents
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from types import MappingProxyType
from uuid import UUID

from shared.errors import BadRequest

ENTRY = struct.Struct("<16sII")
VCEK = UUID("63da758d-e664-4564-adc5-f4b93be8accd")
VLEK = UUID("a8074bc2-a25a-483e-aae6-39c045a0b8a1")
ASK = UUID("4ab7b379-bbac-4fe4-a02f-05aef327c782")  # the ASVK too, where a VLEK signs
ARK = UUID("c0b406a4-a803-4952-9743-3fb6014cd0ae")
CRL = UUID("92f81bc3-5811-4d3d-97ff-d19f88dc67ea")
NAMES = MappingProxyType({VCEK: "VCEK", VLEK: "VLEK", ASK: "ASK", ARK: "ARK", CRL: "CRL"})
MAX_TABLE_BYTES = 64 * 1024
MAX_ENTRIES = 16


@dataclass(frozen=True)
class CertificateTable:
    """Contents by GUID, as the host gave them: DER or PEM, unread. Entries of other GUIDs are kept, not understood."""

    entries: MappingProxyType[UUID, bytes]

    def get(self, guid: UUID) -> bytes:
        """The entry's bytes, b"" where the host gave none."""
        return self.entries.get(guid, b"")


def parse_certificate_table(data: bytes) -> CertificateTable:
    """Strict parse; no bytes at all are an empty table, for a host need not give any.

    Raises:
        BadRequest: `malformed-certificate-table`: no terminator, a repeated GUID, an empty, overlapping or overhanging entry,
            bytes that belong to none, too many of either.
    """
    if len(data) > MAX_TABLE_BYTES:
        raise _malformed(f"{len(data)} bytes are too many")
    heads = _heads(data) if data else []
    entries: dict[UUID, bytes] = {}
    end = (len(heads) + 1) * ENTRY.size if data else 0
    for guid, offset, length in sorted(heads, key=lambda head: head[1]):
        if offset < end or not length or offset + length > len(data):
            raise _malformed(f"entry {NAMES.get(guid, guid)} lies outside the table or over another entry")
        if any(data[end:offset]):
            raise _malformed("bytes between the entries are not zero")
        if guid in entries:
            raise _malformed(f"entry {NAMES.get(guid, guid)} is repeated")
        end = offset + length
        entries[guid] = data[offset:end]
    if any(data[end:]):
        raise _malformed("bytes follow the last entry")
    return CertificateTable(MappingProxyType(entries))


def _heads(data: bytes) -> list[tuple[UUID, int, int]]:
    heads: list[tuple[UUID, int, int]] = []
    for at in range(0, len(data) - ENTRY.size + 1, ENTRY.size):
        guid, offset, length = ENTRY.unpack_from(data, at)
        if not any(guid):
            if offset or length:
                raise _malformed("the terminating entry is not zero")
            return heads
        if len(heads) == MAX_ENTRIES:
            raise _malformed(f"more than {MAX_ENTRIES} entries")
        heads.append((UUID(bytes=guid), offset, length))
    raise _malformed("no terminating entry")


def _malformed(why: str) -> BadRequest:
    return BadRequest(f"certificate table: {why}", code="malformed-certificate-table")
