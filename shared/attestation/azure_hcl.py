"""Azure's HCL blob: a hardware report and the variable data whose digest it covers. For inspection only; believes nothing.

On Azure the paravisor asks for the report, so no nonce of a verifier is in it: the nonce is in a TPM quote by a key that the variable
data names. That is another kind of evidence than a channel accepts. Layout (integers little-endian):

    000 "HCLA", version 4, whole size 4, request type 4, status 4, 0 x12      020 hardware report, 1184 with padding
    4C0 size of this part 4, version 4, report type 4, hash type 4, length 4   4D4 variable data (JSON); then zero bytes
"""

from __future__ import annotations

import hmac
import struct
from dataclasses import dataclass
from typing import Final, Literal

from shared.attestation.snp_report import REPORT_BYTES
from shared.canonical import sha256
from shared.errors import BadRequest, VerificationFailed

MAGIC: Final = b"HCLA"
HEADER = struct.Struct("<4sIIII12s")
PART = struct.Struct("<IIIII")
MAX_BYTES: Final = 16 * 1024
KINDS: Final[dict[int, Literal["snp", "tdx"]]] = {2: "snp", 4: "tdx"}
HASH_SHA256: Final = 1
DIGEST_BYTES: Final = 32
TDREPORT_BYTES: Final = 1024
_REPORT_DATA_AT: Final = {"snp": 0x50, "tdx": 0x80}


@dataclass(frozen=True)
class HclBlob:
    """One blob. `report`: an SEV-SNP report (1184 bytes) or a TDREPORT (1024); `variable_data` the exact bytes that are hashed."""

    kind: Literal["snp", "tdx"]
    report: bytes
    variable_data: bytes

    @property
    def report_data(self) -> bytes:
        """The 64 bytes that the hardware report covers."""
        start = _REPORT_DATA_AT[self.kind]
        return self.report[start : start + 64]

    def check_variable_data(self) -> None:
        """The report covers the variable data. Raises: VerificationFailed `hcl-variable-data`."""
        expected = sha256(self.variable_data)
        if not hmac.compare_digest(self.report_data, expected + bytes(64 - DIGEST_BYTES)):
            raise VerificationFailed(
                "the hardware report does not cover the variable data",
                code="hcl-variable-data",
                expected=expected.hex(),
                got=self.report_data.hex(),
            )


def parse_hcl(data: bytes) -> HclBlob:
    """Strict parse. Raises: BadRequest `malformed-hcl`."""
    if len(data) > MAX_BYTES:
        raise _malformed(f"{len(data)} bytes are too many")
    start = HEADER.size + REPORT_BYTES + PART.size
    if len(data) < start:
        raise _malformed(f"{len(data)} bytes are too few")
    magic, version, whole, _, status, reserved = HEADER.unpack_from(data)
    if magic != MAGIC or version not in (1, 2) or status or any(reserved):
        raise _malformed("the header is not that of an HCL report")
    part, part_version, kind, hash_type, length = PART.unpack_from(data, start - PART.size)
    if kind not in KINDS or hash_type != HASH_SHA256 or part_version != 1:
        raise _malformed(f"report type {kind} with hash type {hash_type} is not known")
    end = start + length
    if part != PART.size + length or whole != end or end > len(data) or any(data[end:]):
        raise _malformed("the sizes do not fit one another")
    report = data[HEADER.size : HEADER.size + REPORT_BYTES]
    if KINDS[kind] == "tdx":
        if any(report[TDREPORT_BYTES:]):
            raise _malformed("bytes follow the TDREPORT")
        report = report[:TDREPORT_BYTES]
    return HclBlob(KINDS[kind], report, data[start:end])


def _malformed(why: str) -> BadRequest:
    return BadRequest(f"HCL report: {why}", code="malformed-hcl")
