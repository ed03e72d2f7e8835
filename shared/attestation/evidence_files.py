"""What a file of evidence is, told by its content alone and strictly. Knows no folder, no root and no policy; believes nothing.

A file's first bytes choose one kind, and that kind's own parser must take the whole of it or say what is wrong: a quote that was cut
short is a bad quote, not something else. Text may be hex or base64 of anything binary, or JSON that holds several pieces.
"""

from __future__ import annotations

import base64
import binascii
import re
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Final, TypeVar
from urllib.parse import unquote_to_bytes

from pydantic import ValidationError

from shared.attestation.azure_hcl import MAGIC, parse_hcl
from shared.attestation.ccel import SPEC_ID, parse_ccel
from shared.attestation.certificate_files import CertificateKind, certificate_kind, pem_ders
from shared.attestation.collateral import Collateral
from shared.attestation.evidence_pieces import FileKind, Piece, gpu_parts, nvidia_parts, signer_parts
from shared.attestation.gpu_report import parse_report
from shared.attestation.gpu_rim import parse_rim
from shared.attestation.nvidia_eat import is_bundle, parse_eat
from shared.attestation.quote import TDX_TEE, parse_quote
from shared.attestation.snp_report import REPORT_BYTES, VERSIONS, parse_snp_report
from shared.canonical import json_value
from shared.claims.event_log import parse_log
from shared.claims.shape import first_fault
from shared.crypto.jws import parse_compact
from shared.errors import BadRequest, VerificationFailed
from shared.wire.snp_certificates import NAMES, parse_certificate_table
from shared.wire.visit import Evidence, GpuEvidence

T = TypeVar("T")
MAX_FILE_BYTES: Final = 8 * 1024 * 1024
MAX_PIECES: Final = 256
_VBIOS = re.compile(r"(?:[0-9A-Fa-f]{2}\.){4}[0-9A-Fa-f]{2}")
_HEX = re.compile(rb"[0-9A-Fa-f]+")
_BASE64 = re.compile(rb"[A-Za-z0-9+/]+={0,2}")
_TOKEN = re.compile(rb"eyJ[A-Za-z0-9_-]*\.[A-Za-z0-9_-]*\.[A-Za-z0-9_-]*")
_GUIDS = tuple(guid.bytes for guid in NAMES)
_SPDM_REQUEST: Final = b"\x11\xe0"


def pieces_of(data: bytes, name: str) -> list[Piece]:
    """What one file holds.

    Raises:
        BadRequest: `unknown-evidence`: empty, too large, or nothing that is known; `malformed-…`: its first bytes say what it should be,
            and JSON or text around it is broken.
    """
    if not data.strip():
        raise _unknown(name, "it is empty")
    if len(data) > MAX_FILE_BYTES:
        raise _unknown(name, f"it has more than {MAX_FILE_BYTES} bytes")
    found = _binary(data, name) or _text(data, name)
    if not found:
        raise _unknown(name, "its content is none of the known formats")
    if len(found) > MAX_PIECES:
        raise _unknown(name, f"it holds more than {MAX_PIECES} pieces")
    return found


# ------------------------------------------------------------------ binary


def _binary(data: bytes, name: str) -> list[Piece]:
    kind = _binary_kind(data)
    if kind is None:
        return []
    return [Piece(kind, name, data, fault=_fault(_PARSERS[kind], data) if kind in _PARSERS else "")]


def _binary_kind(data: bytes) -> FileKind | None:
    if data.startswith(MAGIC):
        return FileKind.HCL
    if data.startswith(_SPDM_REQUEST):
        return FileKind.GPU_REPORT
    if data[:2] in (b"\x04\0", b"\x05\0") and data[4:8] == TDX_TEE.to_bytes(4, "little"):
        return FileKind.TDX_QUOTE
    if len(data) == REPORT_BYTES and int.from_bytes(data[:4], "little") in VERSIONS:
        return FileKind.SNP_REPORT
    if data[:16] in _GUIDS:
        return FileKind.SNP_TABLE
    if SPEC_ID in data[:64]:
        return FileKind.BOOT_LOG
    if data[:1] == b"\x30":
        return _DER.get(certificate_kind(data))
    return None


_DER: Final[dict[CertificateKind | None, FileKind]] = {
    "certificate": FileKind.CERTIFICATES, "crl": FileKind.CRL, "ocsp": FileKind.OCSP,
}  # fmt: skip
_PARSERS: Final[dict[FileKind, Callable[[bytes], object]]] = {
    FileKind.HCL: parse_hcl, FileKind.GPU_REPORT: parse_report, FileKind.TDX_QUOTE: parse_quote,
    FileKind.SNP_REPORT: parse_snp_report, FileKind.SNP_TABLE: parse_certificate_table, FileKind.BOOT_LOG: parse_ccel,
}  # fmt: skip


def _fault(parse: Callable[[bytes], object], data: bytes) -> str:
    """What the kind's own parser has against it; "" where it takes it."""
    try:
        parse(data)
    except (BadRequest, VerificationFailed) as error:
        return error.detail
    return ""


# -------------------------------------------------------------------- text


def _text(data: bytes, name: str) -> list[Piece]:
    text = data.strip()
    if text[:1] in (b"{", b"["):
        return _json(text, name)
    if text.startswith(b"-----BEGIN%20CERTIFICATE"):  # as a collateral service writes chains into its headers
        text = unquote_to_bytes(text)
    if b"-----BEGIN CERTIFICATE-----" in text:
        ders = pem_ders(text)
        sound = ders and all(certificate_kind(der) == "certificate" for der in ders)
        return [Piece(FileKind.CERTIFICATES, name, text, fault="" if sound else "a certificate in it cannot be read")]
    if text[:1] == b"<":
        return [_rim(data, name)]
    if _TOKEN.fullmatch(text):
        return [Piece(FileKind.RESULT, name, text, fault=_fault(lambda raw: parse_compact(raw.decode("ascii")), text))]
    return next((found for decoded in _decoded(text) if (found := _binary(decoded, name))), [])


def _decoded(text: bytes) -> Iterator[bytes]:
    """The bytes that hex or base64 text stands for."""
    # Without its blanks: a pattern that allows for them looks at each again and again.
    close = b"".join(text.split())
    digits = close.removeprefix(b"0x")
    if _HEX.fullmatch(digits) and len(digits) % 2 == 0:
        yield bytes.fromhex(digits.decode("ascii"))
    if _BASE64.fullmatch(close):
        try:
            yield base64.b64decode(close, validate=True)
        except binascii.Error:
            return


def _rim(data: bytes, name: str) -> Piece:
    """A manifest's kind follows from the form of the version that it is for: five pairs of hex digits are a VBIOS."""
    try:
        rim = parse_rim("vbios", data)
    except VerificationFailed as error:
        raise BadRequest(f"{name}: {error.detail}", code=error.code, remedy=error.remedy) from None
    kind = FileKind.VBIOS_RIM if _VBIOS.fullmatch(rim.version) else FileKind.DRIVER_RIM
    return Piece(kind, name, data)


def _json(text: bytes, name: str) -> list[Piece]:
    try:
        value = json_value(text, MAX_FILE_BYTES)
    except BadRequest as error:
        lines = [line for line in text.splitlines() if line.strip()]
        if len(lines) < 2 or not all(line.lstrip()[:1] == b"{" for line in lines):
            raise BadRequest(f"{name}: {error.detail}", code="malformed-json") from None
        return _each(lines, name, lambda line, label: _json(line, label))
    if isinstance(value, dict) and isinstance(value.get("items"), list):
        value = value["items"]  # a page of an API's list
    if is_bundle(value):
        return [Piece(FileKind.NVIDIA_RESULT, name, text, fault=_fault(parse_eat, text))]
    if isinstance(value, list):
        return _each(value, name, lambda entry, label: _record(entry, b"", label))
    return _record(value, text, name)


def _each(entries: Sequence[T], name: str, read: Callable[[T, str], list[Piece]]) -> list[Piece]:
    """The pieces of every entry, one more than are taken at most, so that `pieces_of` refuses those. An entry that is nothing known is
    refused too: what is passed over without a word would seem to have been judged."""
    found: list[Piece] = []
    for number, entry in enumerate(entries[: MAX_PIECES + 1]):
        label = f"{name}#{number}" if len(entries) > 1 else name
        pieces = read(entry, label)
        if not pieces:
            raise _unknown(label, "this entry is none of the known formats")
        found += pieces
    return found


def _record(value: Any, text: bytes, name: str) -> list[Piece]:
    """One JSON object: its members say what it is."""
    if not isinstance(value, dict):
        return []
    members = value.keys()
    try:
        if "tcb_info_issuer_chain" in members:
            return [Piece(FileKind.COLLATERAL, name, text, fault=_fault(Collateral.parse, text))]
        if "signature" in members and members & {"tcbInfo", "enclaveIdentity"}:
            return [Piece(FileKind.COLLATERAL_PART, name, text)]
        if {"certificate", "evidence"} <= members:
            return [Piece(FileKind.GPU_EVIDENCE, name, b"", nvidia_parts(value))]
        if {"runtime_data", "evidence", "gpu_evidence"} <= members:
            return [Piece(FileKind.SIGNER, name, b"", signer_parts(value))]
        if {"report", "chain", "challenge"} <= members:
            return [Piece(FileKind.GPU_EVIDENCE, name, b"", gpu_parts(GpuEvidence.model_validate(value)))]
        if "quote" in members:
            return [Piece(FileKind.CVM_EVIDENCE, name, b"", Evidence.model_validate(value))]
        if {"profile", "entries"} <= members:
            return [Piece(FileKind.EVENT_LOG, name, text, fault=_fault(parse_log, text))]
        if isinstance(value.get("token"), str):
            return _text(value["token"].encode("utf-8", "replace"), name)
    except ValidationError as error:
        raise BadRequest(f"{name}: {first_fault(error)}", code="malformed-evidence") from None
    return []


def _unknown(name: str, why: str) -> BadRequest:
    return BadRequest(
        f"{name}: {why}", code="unknown-evidence",
        remedy="Give a quote, report, certificates, manifest, collateral, evidence JSON or attestation result; see docs/evidence.md.",
    )  # fmt: skip
