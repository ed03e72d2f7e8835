"""SPDM secured messages of one direction (DSP0277, NVIDIA's transport: no sequence bytes). Knows no message's meaning."""

from __future__ import annotations

import struct

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from shared.crypto.schedule import traffic_key_iv
from shared.errors import BadRequest, ProtocolViolation, VerificationFailed

TAG_BYTES = 16
_HEAD = struct.Struct("<IH")  # session id, length of ciphertext and tag: the AAD
_LIMIT = 2**64 - 1


class SpdmRecords:
    """Seals or opens one direction's records. IV = salt XOR sequence number (64-bit LE in the low bytes), from 0.

    Args:
        secret: the direction's handshake or data secret (48 bytes).
    """

    def __init__(self, session_id: int, secret: bytes) -> None:
        key, salt = traffic_key_iv(secret)
        self._session_id = session_id
        self._cipher = AESGCM(key)
        self._salt = int.from_bytes(salt, "little")
        self._sequence = 0

    def seal(self, message: bytes) -> bytes:
        """One record."""
        plaintext = struct.pack("<H", len(message)) + message
        head = _HEAD.pack(self._session_id, len(plaintext) + TAG_BYTES)
        return head + self._cipher.encrypt(self._take(), plaintext, head)

    def open(self, record: bytes) -> bytes:
        """The message of the next record in sequence. Raises: BadRequest `malformed-spdm`, VerificationFailed `tag-mismatch`."""
        if len(record) < _HEAD.size + 2 + TAG_BYTES:
            raise BadRequest("SPDM: secured record is short", code="malformed-spdm")
        head, body = record[: _HEAD.size], record[_HEAD.size :]
        if _HEAD.unpack(head) != (self._session_id, len(body)):
            raise BadRequest("SPDM: secured record of another session or length", code="malformed-spdm")
        try:
            plaintext = self._cipher.decrypt(self._iv(), body, head)
        except InvalidTag:
            raise VerificationFailed("SPDM: a secured record does not authenticate", code="tag-mismatch") from None
        self._take()
        (size,) = struct.unpack_from("<H", plaintext)
        if size > len(plaintext) - 2:
            raise BadRequest("SPDM: application length exceeds the record", code="malformed-spdm")
        return plaintext[2 : 2 + size]

    def _iv(self) -> bytes:
        return (self._salt ^ self._sequence).to_bytes(12, "little")

    def _take(self) -> bytes:
        if self._sequence >= _LIMIT:
            raise ProtocolViolation("SPDM: sequence number exhausted", code="counter-exhausted")
        iv = self._iv()
        self._sequence += 1
        return iv
