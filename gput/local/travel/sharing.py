"""Both ends of a conventional transfer: records sealed under a key that the holder draws and seals to the other end. Knows no HTTP.

A record is a copy record of the product (header, AES-256-GCM, counted IVs); AAD = header ‖ SHA-256(CBOR["gput/bench-share", public key]).
Index and total stand in every header, so nothing is left out, repeated or swapped; no proof of membership is made, as none is asked for.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Self

from shared.canonical import cbor_bytes, sha256
from shared.crypto.aead import KEY_BYTES, OpeningChannel, SealingChannel
from shared.crypto.hpke import OneTimeKey, seal
from shared.errors import ProtocolViolation
from shared.wire.copy import DATA, HEADER_BYTES, TAG_BYTES, CopyHeader, pack_header, parse_record

CHUNK_BYTES = 2 * 1024 * 1024
"""As large as a visit's chunks."""
EPOCH = REGION = 1
INFO = b"gput/bench-share"


def _context(public: bytes) -> bytes:
    return sha256(cbor_bytes(["gput/bench-share", public]))


class Outbound:
    """The holder's end of one transfer of the first `length` bytes of a file."""

    def __init__(self, public: bytes, file: Path, length: int) -> None:
        key = os.urandom(KEY_BYTES)
        self.sealed_key = seal(public, key, INFO)
        self._channel = SealingChannel(key, label="bench share")
        self._context, self._file, self._length = _context(public), file, length
        self.total = -(-length // CHUNK_BYTES)

    def records(self) -> Iterator[memoryview]:
        """Each record once, in order; read and sealed when it is asked for."""
        with self._file.open("rb") as file:
            for index in range(self.total):
                plaintext = file.read(min(CHUNK_BYTES, self._length - index * CHUNK_BYTES))
                raw = pack_header(CopyHeader(DATA, EPOCH, REGION, index, self.total, len(plaintext)))
                out = memoryview(bytearray(HEADER_BYTES + len(plaintext) + TAG_BYTES))
                out[:HEADER_BYTES] = raw
                self._channel.seal_into(plaintext, raw + self._context, out[HEADER_BYTES:])
                yield out


class Inbound:
    """The other end."""

    def __init__(self, key: bytes, public: bytes) -> None:
        self._channel = OpeningChannel(key, label="bench share")
        self._context = _context(public)
        self._next = self._offset = 0
        self._total: int | None = None

    @classmethod
    def opened(cls, key: OneTimeKey, sealed: bytes) -> Self:
        """Raises: VerificationFailed: not sealed to this key. ProtocolViolation: the key was used."""
        return cls(key.open(sealed, INFO), key.public)

    def open(self, record: bytes) -> tuple[int, bytes, bool]:
        """(offset in the transfer, plaintext, whether it is the last).

        Raises:
            ProtocolViolation: not the next record of this transfer. VerificationFailed: it does not authenticate. BadRequest: no record.
        """
        header, raw, ciphertext = parse_record(record)
        total = self._total or header.total
        if (header.kind, header.index, header.total) != (DATA, self._next, total) or header.index >= total:
            raise ProtocolViolation("not the next record of this transfer", code="out-of-order")
        plaintext = self._channel.open(ciphertext, raw + self._context)
        offset = self._offset
        self._next, self._offset, self._total = self._next + 1, offset + len(plaintext), total
        return offset, plaintext, self._next == total
