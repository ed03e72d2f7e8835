"""One byte string per value: canonical JSON (RFC 8785), deterministic CBOR (RFC 8949 4.2), digests. Knows no meaning.

Hash bytes as received; never re-serialise what somebody else signed.
"""

from __future__ import annotations

import hashlib
import json as _json
from math import isinf
from typing import Any

import rfc8785
from blake3 import blake3

from shared.canonical.cbor import cbor_byte_string as cbor_byte_string
from shared.canonical.cbor import cbor_bytes as cbor_bytes
from shared.canonical.cbor import cbor_in_any_form as cbor_in_any_form
from shared.canonical.cbor import cbor_value as cbor_value
from shared.canonical.plain_json import plain_json
from shared.errors import BadRequest

MAX_JSON_BYTES = 4 * 1024 * 1024


def json_bytes(value: Any) -> bytes:
    """Canonical JSON of `value` (RFC 8785).

    Raises:
        BadRequest: the value has no canonical form (NaN, integers beyond 2^53, non-string keys), or is nested too deep.
    """
    try:
        return plain_json(value).encode()
    except (rfc8785.CanonicalizationError, ValueError, RecursionError) as error:
        raise BadRequest(f"value has no canonical JSON form: {error}") from error


def json_value(data: bytes, limit: int = MAX_JSON_BYTES) -> Any:
    """Parse JSON strictly: UTF-8, no duplicate keys, no NaN or infinities, bounded size.

    Raises:
        BadRequest: anything else.
    """
    if len(data) > limit:
        raise BadRequest(f"JSON of {len(data)} bytes exceeds {limit}")
    try:
        return _STRICT.decode(data.decode("utf-8"))
    except (ValueError, RecursionError) as error:
        raise BadRequest(f"not strict JSON: {error}") from error


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    seen = dict(pairs)
    if len(seen) != len(pairs):
        raise ValueError("duplicate object key")
    return seen


def _no_constant(name: str) -> Any:
    raise ValueError(f"{name} is not JSON")


def _finite(text: str) -> float:
    value = float(text)
    if isinf(value):
        raise ValueError(f"{text[:20]} is too large a number")
    return value


_STRICT = _json.JSONDecoder(object_pairs_hook=_unique, parse_constant=_no_constant, parse_float=_finite)


def sha256(data: bytes) -> bytes:
    """SHA-256, 32 bytes."""
    return hashlib.sha256(data).digest()


def sha384(data: bytes) -> bytes:
    """SHA-384, 48 bytes."""
    return hashlib.sha384(data).digest()


def sha512(data: bytes) -> bytes:
    """SHA-512, 64 bytes."""
    return hashlib.sha512(data).digest()


def blake3_256(data: bytes | bytearray | memoryview) -> bytes:
    """BLAKE3, 32 bytes; for large regions (4.6 GB/s a thread)."""
    return _digested(blake3(), data)


def keyed_blake3(key: bytes, data: bytes | bytearray | memoryview) -> bytes:
    """BLAKE3 keyed with a 32-byte salt: the commitment to a visit's records, not open to dictionary attack (H25)."""
    return _digested(blake3(key=key), data)


def _digested(hasher: blake3, data: bytes | bytearray | memoryview) -> bytes:
    hasher.update(data)
    digest = hasher.digest()
    # A hasher buffers its input's last block (up to 64 bytes) and does not clear it when freed: records would stay in our heap
    # after a perfect scrub (law L7). A reset overwrites the buffer.
    hasher.reset()
    return digest
