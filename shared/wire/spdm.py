"""SPDM 1.1 messages, byte by byte: build and parse. Knows no key, no session and no transport.

Source: DMTF DSP0274 1.1 and DSP0277 as summarised in reference h100.md 5.1-5.3; integers little-endian, signature halves
big-endian. Parsing is strict: a message has exactly its fields, or `BadRequest` code `malformed-spdm`.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from typing import Final

from shared.canonical import cbor_bytes, cbor_value
from shared.errors import BadRequest, GputError, Unavailable

V10, V11 = 0x10, 0x11
GET_VERSION, VERSION = 0x84, 0x04
GET_CAPABILITIES, CAPABILITIES = 0xE1, 0x61
NEGOTIATE_ALGORITHMS, ALGORITHMS = 0xE3, 0x63
GET_CERTIFICATE, CERTIFICATE = 0x82, 0x02
GET_MEASUREMENTS, MEASUREMENTS = 0xE0, 0x60
KEY_EXCHANGE, KEY_EXCHANGE_RSP = 0xE4, 0x64
FINISH, FINISH_RSP = 0xE5, 0x65
ERROR = 0x7F
# Error codes of DSP0274 table 49.
INVALID_REQUEST, UNEXPECTED_REQUEST, UNSPECIFIED, DECRYPT_ERROR, UNSUPPORTED_REQUEST = 0x01, 0x04, 0x05, 0x06, 0x07
SESSION_REQUIRED = 0x0B

HEADER_BYTES: Final = 4
SIGNATURE_BYTES: Final = 96
HASH_BYTES: Final = 48
POINT_BYTES: Final = 96
RANDOM_BYTES: Final = 32
MAX_MESSAGE_BYTES: Final = 0x4000
CERTIFICATE_PORTION: Final = 0x1000

_CERT, _MEAS_SIG, _MEAS_FRESH = 1 << 1, 1 << 4, 1 << 5
_ENCRYPT, _MAC, _KEY_EX = 1 << 6, 1 << 7, 1 << 9
_SECURED_MESSAGE_1_0 = b"\x00\x10"
_IANA_REGISTRY, _NO_ENTERPRISE = 4, bytes(4)  # our element names no vendor: it is emulated


def _header(version: int, code: int, param1: int = 0, param2: int = 0) -> bytes:
    return bytes((version, code, param1, param2))


# What both sides support is fixed, so these six messages are constants; they still enter the transcript (VCA).
GET_VERSION_MESSAGE: Final = _header(V10, GET_VERSION)
VERSION_MESSAGE: Final = _header(V10, VERSION) + bytes((0, 1)) + b"\x00\x11"
GET_CAPABILITIES_MESSAGE: Final = _header(V11, GET_CAPABILITIES) + struct.pack(
    "<BBHI", 0, 0, 0, _CERT | _ENCRYPT | _MAC | _KEY_EX
)
CAPABILITIES_MESSAGE: Final = _header(V11, CAPABILITIES) + struct.pack(
    "<BBHI", 0, 0, 0, _CERT | _MEAS_SIG | _MEAS_FRESH | _ENCRYPT | _MAC | _KEY_EX
)
# DHE secp384r1, AEAD AES-256-GCM, requester signature none (the CVM attests itself elsewhere), SPDM key schedule.
_STRUCTS = struct.pack("<BBHBBHBBHBBH", 2, 0x20, 1 << 4, 3, 0x20, 1 << 1, 4, 0x20, 0, 5, 0x20, 1)
_ECDSA_P384, _SHA384, _MEAS_SHA384 = 1 << 7, 1 << 1, 1 << 2
NEGOTIATE_ALGORITHMS_MESSAGE: Final = (
    _header(V11, NEGOTIATE_ALGORITHMS, 4)
    + struct.pack("<HBBII12xBBH", 48, 1, 0, _ECDSA_P384, _SHA384, 0, 0, 0)
    + _STRUCTS
)
ALGORITHMS_MESSAGE: Final = (
    _header(V11, ALGORITHMS, 4)
    + struct.pack("<HBBIII12xBBH", 52, 1, 0, _MEAS_SHA384, _ECDSA_P384, _SHA384, 0, 0, 0)
    + _STRUCTS
)


def malformed(what: str) -> BadRequest:
    """The parser's one error."""
    return BadRequest(f"SPDM: {what}", code="malformed-spdm")


def code_of(message: bytes) -> int:
    """Request or response code. Raises: BadRequest on anything shorter than a header."""
    if not HEADER_BYTES <= len(message) <= MAX_MESSAGE_BYTES:
        raise malformed(f"message of {len(message)} bytes")
    return message[1]


def _expect(message: bytes, code: int, size: int | None = None) -> None:
    if code_of(message) == ERROR and code != ERROR:
        raise refusal(message)
    if message[0] != V11 or message[1] != code or (size is not None and len(message) != size):
        raise malformed(f"expected code {code:#04x} of {size} bytes, got {message[1]:#04x} of {len(message)}")


def error(code: int) -> bytes:
    """An ERROR message."""
    return _header(V11, ERROR, code)


def refusal(message: bytes) -> GputError:
    """What an ERROR message says: BadRequest `spdm-error`, or Unavailable `spdm-device-fault`, where it is no answer to what was asked."""
    said = f"{message[2]:#04x}"
    if message[2] == UNSPECIFIED:
        return Unavailable("SPDM: the device has a fault of its own", code="spdm-device-fault", got=said)
    return BadRequest(f"SPDM: the device answered ERROR {said}", code="spdm-error", got=said)


# ----------------------------------------------------------------- certificates


def get_certificate(offset: int) -> bytes:
    """Ask for the next portion of slot 0's chain."""
    return _header(V11, GET_CERTIFICATE) + struct.pack("<HH", offset, CERTIFICATE_PORTION)


def parse_get_certificate(message: bytes) -> tuple[int, int]:
    """(offset, length)."""
    _expect(message, GET_CERTIFICATE, 8)
    offset, length = struct.unpack_from("<HH", message, 4)
    return offset, length


def certificate(chain: bytes, offset: int, length: int) -> bytes:
    """One portion of the chain in SPDM form."""
    portion = chain[offset : offset + min(length, CERTIFICATE_PORTION)]
    return _header(V11, CERTIFICATE) + struct.pack("<HH", len(portion), len(chain) - offset - len(portion)) + portion


def parse_certificate(message: bytes) -> tuple[bytes, int]:
    """(portion, bytes that remain)."""
    _expect(message, CERTIFICATE)
    if len(message) < 8:
        raise malformed("CERTIFICATE without lengths")
    size, remainder = struct.unpack_from("<HH", message, 4)
    if len(message) != 8 + size or not size:
        raise malformed("CERTIFICATE length")
    return message[8:], remainder


def chain_form(root_hash: bytes, certificates: list[bytes]) -> bytes:
    """A chain in SPDM form: length u16, reserved u16, SHA-384 of the root certificate, DER certificates root first."""
    body = root_hash + b"".join(certificates)
    return struct.pack("<HH", 4 + len(body), 0) + body


def parse_chain_form(chain: bytes) -> tuple[bytes, list[bytes]]:
    """(root hash, DER certificates root first)."""
    if len(chain) < 4 + HASH_BYTES or struct.unpack_from("<HH", chain) != (len(chain), 0):
        raise malformed("certificate chain length")
    found: list[bytes] = []
    rest = chain[4 + HASH_BYTES :]
    while rest:
        if len(rest) < 4 or rest[:2] != b"\x30\x82":
            raise malformed("certificate is not DER")
        size = 4 + int.from_bytes(rest[2:4], "big")
        if len(rest) < size or len(found) == 8:
            raise malformed("certificate chain content")
        found.append(rest[:size])
        rest = rest[size:]
    return chain[4 : 4 + HASH_BYTES], found


# ----------------------------------------------------------------- key exchange


@dataclass(frozen=True)
class VendorElement:
    """What a KEY_EXCHANGE says of our protocol, in its opaque data and so in the transcript.

    key: SHA-256 (32) of the orchestrator's signing key. life: the life to open, 0 for a fresh start. resume: proof (48) or empty.
    """

    key: bytes
    life: int
    resume: bytes


def _opaque(*elements: tuple[int, bytes, bytes]) -> bytes:
    body = b""
    for registry, vendor, data in elements:
        element = struct.pack("<BB", registry, len(vendor)) + vendor + struct.pack("<H", len(data)) + data
        body += element + bytes(-len(element) % 4)
    return b"FTMD" + struct.pack("<BBH", 1, len(elements), 0) + body


def key_exchange(request_id: int, random: bytes, point: bytes, vendor: VendorElement) -> bytes:
    """KEY_EXCHANGE. `random` 32, `point` X‖Y 96 bytes."""
    ours = cbor_bytes({"key": vendor.key, "life": vendor.life, "resume": vendor.resume})
    versions = (0, b"", bytes((1, 1, 1)) + _SECURED_MESSAGE_1_0)
    opaque = _opaque(versions, (_IANA_REGISTRY, _NO_ENTERPRISE, ours))
    return (
        _header(V11, KEY_EXCHANGE)
        + struct.pack("<HBB", request_id, 0, 0)
        + random
        + point
        + struct.pack("<H", len(opaque))
        + opaque
    )


@dataclass(frozen=True)
class KeyExchange:
    """A parsed KEY_EXCHANGE."""

    request_id: int
    random: bytes
    point: bytes
    vendor: VendorElement


def parse_key_exchange(message: bytes) -> KeyExchange:
    """Strict: the opaque data must be exactly what `key_exchange` writes for the values found in it."""
    _expect(message, KEY_EXCHANGE)
    if len(message) < 138:
        raise malformed("KEY_EXCHANGE is short")
    (request_id,) = struct.unpack_from("<H", message, 4)
    random, point = message[8:40], message[40:136]
    vendor = _parse_vendor(message[138:])
    if key_exchange(request_id, random, point, vendor) != message:
        raise malformed("KEY_EXCHANGE is not in the one form this profile has")
    return KeyExchange(request_id, random, point, vendor)


def _parse_vendor(opaque: bytes) -> VendorElement:
    start = (
        8 + 12 + 2 + 4 + 2
    )  # header, version element (9 bytes, padded), our element's registry, enterprise and length
    if len(opaque) < start:
        raise malformed("KEY_EXCHANGE opaque data")
    (size,) = struct.unpack_from("<H", opaque, start - 2)
    value = cbor_value(opaque[start : start + size])
    if not isinstance(value, dict) or set(value) != {"key", "life", "resume"}:
        raise malformed("KEY_EXCHANGE vendor element")
    key, life, resume = value["key"], value["life"], value["resume"]
    if not (isinstance(key, bytes) and len(key) == 32 and type(life) is int and 0 <= life < 2**31):
        raise malformed("KEY_EXCHANGE vendor element")
    if not (isinstance(resume, bytes) and len(resume) in (0, HASH_BYTES)):
        raise malformed("KEY_EXCHANGE vendor element")
    return VendorElement(key, life, resume)


_RSP_OPAQUE: Final = _opaque((0, b"", bytes((1, 0)) + _SECURED_MESSAGE_1_0))
_RSP_FIXED: Final = 8 + RANDOM_BYTES + POINT_BYTES + 2 + len(_RSP_OPAQUE)


def key_exchange_rsp_unsigned(response_id: int, random: bytes, point: bytes) -> bytes:
    """KEY_EXCHANGE_RSP up to but excluding signature (96) and verify data (48). Heartbeat off: a pause must not lose a model."""
    fixed = _header(V11, KEY_EXCHANGE_RSP) + struct.pack("<HBB", response_id, 0, 0) + random + point
    return fixed + struct.pack("<H", len(_RSP_OPAQUE)) + _RSP_OPAQUE


@dataclass(frozen=True)
class KeyExchangeRsp:
    """A parsed KEY_EXCHANGE_RSP; `unsigned` are the bytes the signature covers of it."""

    response_id: int
    random: bytes
    point: bytes
    unsigned: bytes
    signature: bytes
    verify_data: bytes


def parse_key_exchange_rsp(message: bytes) -> KeyExchangeRsp:
    """Strict, as `parse_key_exchange`."""
    _expect(message, KEY_EXCHANGE_RSP, _RSP_FIXED + SIGNATURE_BYTES + HASH_BYTES)
    (response_id,) = struct.unpack_from("<H", message, 4)
    random, point, unsigned = message[8:40], message[40:136], message[:_RSP_FIXED]
    if key_exchange_rsp_unsigned(response_id, random, point) != unsigned:
        raise malformed("KEY_EXCHANGE_RSP is not in the one form this profile has")
    return KeyExchangeRsp(response_id, random, point, unsigned, message[_RSP_FIXED:-HASH_BYTES], message[-HASH_BYTES:])


FINISH_HEADER: Final = _header(V11, FINISH)
FINISH_RSP_MESSAGE: Final = _header(V11, FINISH_RSP)


def parse_finish(message: bytes) -> bytes:
    """The requester's verify data (48 bytes)."""
    _expect(message, FINISH, 4 + HASH_BYTES)
    if message[:4] != FINISH_HEADER:
        raise malformed("FINISH header")
    return message[4:]


# ----------------------------------------------------------------- measurements


def get_measurements(nonce: bytes) -> bytes:
    """37 bytes: all blocks, signed, slot 0; `nonce` 32 bytes."""
    return _header(V11, GET_MEASUREMENTS, 0x01, 0xFF) + nonce + b"\x00"


def parse_get_measurements(message: bytes) -> bytes:
    """The requester's nonce (32 bytes)."""
    _expect(message, GET_MEASUREMENTS, 37)
    nonce = message[4:36]
    if get_measurements(nonce) != message:
        raise malformed("GET_MEASUREMENTS must ask for all blocks, signed, from slot 0")
    return nonce
