"""The GPU attestation report: GET_MEASUREMENTS request ‖ MEASUREMENTS response, byte by byte. Knows no key, no chain, no policy.

Layout as produced by the driver for SPDM 1.1 (reference h100.md section 1); one set of constants for the parser and for the
emulated device's builder. All integers little-endian, signature halves big-endian.

    0 request: version, code, param1, param2, nonce 32, slot                                                      (37 bytes)
    37 response: version, code, param1, param2, blocks u8, record length u24, record, nonce 32, opaque length u16, opaque, r ‖ s 96
"""

from __future__ import annotations

import re
import struct
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import IntEnum
from types import MappingProxyType
from typing import Final

from shared.canonical import sha384
from shared.errors import BadRequest, VerificationFailed
from shared.wire.spdm import MEASUREMENTS, SIGNATURE_BYTES, V11, parse_get_measurements

NONCE_BYTES: Final = 32
REQUEST_BYTES: Final = 37
BLOCKS: Final = 64  # a GPU; an NVSwitch has 31, which is one way to tell them apart
BLOCK = struct.Struct("<BBHBH48s")  # index, specification, size, value type, value size, SHA-384
DIGEST_BYTES: Final = 48
DMTF: Final = 0x01
RECORD_BYTES: Final = BLOCKS * BLOCK.size
MAX_REPORT_BYTES: Final = 0x2000  # NVML's report buffer
STATEMENT_KEY_PROFILE: Final = (
    "gput/statement-key"  # what the leaf certifies besides reports: the key of this boot's statements
)
_TYPE_LIMIT, _MAX_OPAQUE_VERSION = 36, 1
_NAME_PART = re.compile(rb"([0-9A-Za-z]{1,16})\0*")
_DRIVER_VERSION = re.compile(rb"[0-9]{1,4}(\.[0-9]{1,4}){1,3}\0")


class Opaque(IntEnum):
    """Types of the opaque fields that we read or write; the rest is passed through unread (h100.md 1.3)."""

    DRIVER_VERSION = 3
    GPU_INFO = 4
    VBIOS_VERSION = 6
    NVDEC0_STATUS = 11
    MSRSCNT = 12
    CPRINFO = 13
    BOARD_ID = 14
    CHIP_SKU = 15
    CHIP_SKU_MOD = 16
    PROJECT = 17
    PROJECT_SKU = 18
    PROJECT_SKU_MOD = 19
    FWID = 20
    PROTECTED_PCIE_STATUS = 21
    OPAQUE_DATA_VERSION = 34
    CHIP_INFO = 35
    FEATURE_FLAG = 36


ORDER_580: Final = (6, 14, 15, 16, 17, 18, 19, 3, 4, 12, 13, 11, 20, 21, 34, 36)
"""Field order of the 580 firmware generation; with an 11-byte driver field the report has 4130 bytes."""
_SIZES: Final = {4: 8, 6: 8, 11: 1, 12: 4 * BLOCKS, 20: DIGEST_BYTES, 21: 1, 34: 2, 36: 2}
ENABLED, DISABLED = b"\xaa", b"\x55"  # NVDEC0_STATUS and PROTECTED_PCIE_STATUS
MODES: Final = ("spt", "mpt", "ppcie")
"""Single-GPU passthrough, multi-GPU passthrough, protected PCIe: the feature flags 0, 1, 2."""
_REQUIRED: Final = (Opaque.DRIVER_VERSION, Opaque.GPU_INFO, Opaque.VBIOS_VERSION, Opaque.NVDEC0_STATUS)


@dataclass(frozen=True)
class GpuReport:
    """A well-formed report; nothing in it is believed yet.

    `measurements[i]` is block i + 1 (48 bytes); `signed` is all but the signature.
    """

    nonce: bytes
    measurements: tuple[bytes, ...]
    responder_nonce: bytes
    opaque: Mapping[int, bytes]
    signed: bytes
    signature: bytes

    @property
    def driver_version(self) -> str:
        """As asserted by the host's driver; digits and dots."""
        return self.opaque[Opaque.DRIVER_VERSION].rstrip(b"\0").decode("ascii")

    @property
    def vbios_version(self) -> str:
        """E.g. "96.00.9F.00.01": hex of the first word in dotted bytes, then the low byte of the second."""
        first, second = struct.unpack("<II", self.opaque[Opaque.VBIOS_VERSION])
        return ".".join(f"{byte:02X}" for byte in (*first.to_bytes(4, "big"), second & 0xFF))

    @property
    def fwid(self) -> bytes | None:
        """SHA-384 of the GSP FMC firmware; None from firmware older than 550."""
        return self.opaque.get(Opaque.FWID)

    @property
    def measurements_digest(self) -> str:
        """SHA-384 over all 64 values, hex: what a manifest may agree on."""
        return sha384(b"".join(self.measurements)).hex()

    @property
    def mode(self) -> str:
        """One of `MODES`; firmware without feature flag tells protected PCIe from single-GPU passthrough by field 21.

        Raises: VerificationFailed `gpu-feature-flag`: an unknown flag, or one that contradicts field 21.
        """
        protected = self.opaque.get(Opaque.PROTECTED_PCIE_STATUS, DISABLED) == ENABLED
        flag = self.opaque.get(Opaque.FEATURE_FLAG)
        number = int.from_bytes(flag, "little") if flag is not None else 2 if protected else 0
        if number >= len(MODES) or protected != (MODES[number] == "ppcie"):
            raise VerificationFailed(
                "the report's feature flag is unknown or contradicts its protected PCIe status",
                code="gpu-feature-flag", expected="0, 1 or 2; protected PCIe with 2 only",
                got=f"{number}, protected PCIe {'on' if protected else 'off'}",
            )  # fmt: skip
        return MODES[number]

    @property
    def decoder_disabled(self) -> bool:
        """Whether NVDEC0 is off: its measurement (RIM index 35) then says nothing."""
        return self.opaque[Opaque.NVDEC0_STATUS] == DISABLED

    def text(self, kind: Opaque) -> str:
        """A NUL-padded field of letters and digits, as it stands in RIM names.

        Raises: VerificationFailed `gpu-rim-name`: absent, or other characters (the name becomes part of a file's).
        """
        match = _NAME_PART.fullmatch(self.opaque.get(kind, b""))
        if match is None:
            raise VerificationFailed(
                f"opaque field {kind.name} is no name, so that no reference values can be looked up",
                code="gpu-rim-name", expected="letters and digits", got=self.opaque.get(kind, b"").hex() or "absent",
            )  # fmt: skip
        return match.group(1).decode("ascii").upper()


def unsigned_report(
    request: bytes, measurements: Iterable[bytes], responder_nonce: bytes, opaque: Mapping[int, bytes]
) -> bytes:
    """Request ‖ MEASUREMENTS up to the signature, opaque fields in the order of `opaque`; what the leaf key signs.

    Args:
        measurements: 64 SHA-384 values, block 1 first; reserved blocks are zero.
    """
    record = b"".join(
        BLOCK.pack(index, DMTF, 3 + DIGEST_BYTES, DMTF, DIGEST_BYTES, value)
        for index, value in enumerate(measurements, start=1)
    )
    fields = b"".join(struct.pack("<HH", kind, len(value)) + value for kind, value in opaque.items())
    head = bytes([V11, MEASUREMENTS, 0, 0, len(record) // BLOCK.size]) + len(record).to_bytes(3, "little")
    return request + head + record + responder_nonce + struct.pack("<H", len(fields)) + fields


def parse_report(data: bytes) -> GpuReport:
    """Strict parse of request ‖ response of a GPU (64 blocks).

    Raises:
        BadRequest: `malformed-gpu-report` (`malformed-spdm` for the request half): any offset, size, order, type or leftover
            that is not as published.
    """
    if len(data) > MAX_REPORT_BYTES:
        raise _malformed(f"{len(data)} bytes are too many")
    opaque_at = REQUEST_BYTES + 8 + RECORD_BYTES + NONCE_BYTES
    if len(data) < opaque_at + 2 + SIGNATURE_BYTES:
        raise _malformed(f"{len(data)} bytes are too few for {BLOCKS} blocks and a signature")
    nonce = parse_get_measurements(data[:REQUEST_BYTES])
    _check_head(data[REQUEST_BYTES : REQUEST_BYTES + 8])
    record = data[REQUEST_BYTES + 8 : opaque_at - NONCE_BYTES]
    (opaque_length,) = struct.unpack_from("<H", data, opaque_at)
    end = opaque_at + 2 + opaque_length
    if len(data) != end + SIGNATURE_BYTES:
        raise _malformed("opaque data and signature do not fill the report exactly")
    return GpuReport(
        nonce=nonce,
        measurements=_blocks(record),
        responder_nonce=data[opaque_at - NONCE_BYTES : opaque_at],
        opaque=MappingProxyType(_opaque(data[opaque_at + 2 : end])),
        signed=data[:end],
        signature=data[end:],
    )


def _check_head(head: bytes) -> None:
    if head[:4] != bytes([V11, MEASUREMENTS, 0, 0]):
        raise _malformed("the response half is not SPDM 1.1 MEASUREMENTS")
    if head[4] != BLOCKS or int.from_bytes(head[5:], "little") != RECORD_BYTES:
        raise _malformed(f"a GPU reports {BLOCKS} measurement blocks of {BLOCK.size} bytes, this device {head[4]}")


def _blocks(record: bytes) -> tuple[bytes, ...]:
    values = []
    for expected, fields in enumerate(BLOCK.iter_unpack(record), start=1):
        index, specification, size, kind, value_size, value = fields
        if (index, specification, size, kind, value_size) != (expected, DMTF, 51, DMTF, DIGEST_BYTES):
            raise _malformed(f"measurement block {expected} is not index {expected}, DMTF, SHA-384")
        values.append(value)
    return tuple(values)


def _opaque(data: bytes) -> dict[int, bytes]:
    fields: dict[int, bytes] = {}
    at = 0
    while at < len(data):
        if at + 4 > len(data):
            raise _malformed("an opaque field is truncated")
        kind, size = struct.unpack_from("<HH", data, at)
        at += 4
        if not 1 <= kind <= _TYPE_LIMIT or kind in fields or at + size > len(data):
            raise _malformed(f"opaque field {kind} is unknown, repeated or truncated")
        if size != _SIZES.get(kind, size):
            raise _malformed(f"opaque field {kind} has {size} bytes")
        fields[kind] = data[at : at + size]
        at += size
    _check_values(fields)
    return fields


def _check_values(fields: dict[int, bytes]) -> None:
    absent = [kind.name for kind in _REQUIRED if kind not in fields]
    if absent:
        raise _malformed(f"opaque field {absent[0]} is absent: not a GPU's report")
    # The version becomes part of a file name (the RIM's), so nothing but digits and dots may pass.
    if not _DRIVER_VERSION.fullmatch(fields[Opaque.DRIVER_VERSION]):
        raise _malformed("the driver version is not digits and dots")
    if int.from_bytes(fields.get(Opaque.OPAQUE_DATA_VERSION, b"\0\0"), "little") > _MAX_OPAQUE_VERSION:
        raise _malformed("the opaque data's version is unknown")
    for kind in (Opaque.NVDEC0_STATUS, Opaque.PROTECTED_PCIE_STATUS):
        if fields.get(kind, DISABLED) not in (ENABLED, DISABLED):
            raise _malformed(f"{kind.name} is neither enabled nor disabled")


def _malformed(why: str) -> BadRequest:
    return BadRequest(f"GPU report: {why}", code="malformed-gpu-report")
