"""TDX quotes, written: the other direction of `shared.attestation.quote`. Knows no key: signatures come in ready.

Layout: Intel TDX DCAP Quoting Library API, appendix A.3 (version 4) and A.4 (version 5).
"""

from __future__ import annotations

import struct

from shared.attestation.quote import (
    BODY_SIZES,
    ECDSA_P256,
    HEADER,
    INTEL_QE_VENDOR,
    PEM_CHAIN,
    QE_CERTIFICATION,
    QE_REPORT_BYTES,
    TDX_TEE,
    SignatureData,
    TdReport,
)
from shared.errors import BadRequest

QE_ATTRIBUTES = 0x1 | 0x4 | 0x10  # INIT, MODE64BIT, PROVISION_KEY, as Intel's quoting enclave; never DEBUG
TD_TYPES = {size - BODY_SIZES[2]: body_type for body_type, size in BODY_SIZES.items()}


def pack_signed(version: int, body: TdReport, user_data: bytes = bytes(20)) -> bytes:
    """Header and body, which the attestation key signs. Version 5 takes the body type from the body's length.

    Raises:
        BadRequest: `malformed-quote`: a field of wrong length, or version 4 with a body other than TD report 1.0.
    """
    packed = body.pack()
    header = HEADER.pack(version, ECDSA_P256, TDX_TEE, 0, 0, INTEL_QE_VENDOR, _sized(user_data, 20, "user_data"))
    if version == 5 and len(body.tail) in TD_TYPES:
        return header + struct.pack("<HI", TD_TYPES[len(body.tail)], len(packed)) + packed
    if version != 4 or body.tail:
        raise BadRequest(f"no version {version} quote has a body of {len(packed)} bytes", code="malformed-quote")
    return header + packed


def pack_qe_report(*, mr_enclave: bytes, mr_signer: bytes, isv_prod_id: int, isv_svn: int, report_data: bytes) -> bytes:
    """384 bytes of an SGX report body. Raises: BadRequest on wrong lengths."""
    raw = bytearray(QE_REPORT_BYTES)
    raw[48:56] = QE_ATTRIBUTES.to_bytes(8, "little")
    raw[64:96] = _sized(mr_enclave, 32, "mr_enclave")
    raw[128:160] = _sized(mr_signer, 32, "mr_signer")
    raw[256:260] = struct.pack("<HH", isv_prod_id, isv_svn)
    raw[320:384] = _sized(report_data, 64, "report_data")
    return bytes(raw)


def pack_quote(signed: bytes, signature: SignatureData) -> bytes:
    """A quote from its signed part and signature data. Raises: BadRequest on wrong lengths."""
    inner = b"".join(
        (
            _sized(signature.qe_report.raw, QE_REPORT_BYTES, "qe_report"),
            _sized(signature.qe_signature, 64, "qe_signature"),
            struct.pack("<H", len(signature.qe_auth)) + signature.qe_auth,
            struct.pack("<HI", PEM_CHAIN, len(signature.certification)) + signature.certification,
        )
    )
    outer = b"".join(
        (
            _sized(signature.signature, 64, "signature"),
            _sized(signature.attestation_key, 64, "attestation_key"),
            struct.pack("<HI", QE_CERTIFICATION, len(inner)) + inner,
        )
    )
    return signed + struct.pack("<I", len(outer)) + outer


def _sized(value: bytes, size: int, name: str) -> bytes:
    if len(value) != size:
        raise BadRequest(f"{name} has {size} bytes, got {len(value)}", code="malformed-quote")
    return value
