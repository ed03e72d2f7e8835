"""What a piece of evidence says of itself, field by field and unbelieved. Knows the parsed forms, no trust and no check."""

from __future__ import annotations

from typing import Any

from shared.attestation.azure_hcl import parse_hcl
from shared.attestation.ccel import parse_ccel
from shared.attestation.certificate_files import certificate_facts, ders_of
from shared.attestation.collateral import Collateral
from shared.attestation.cpu_claims import quote_claims, report_claims
from shared.attestation.evidence_pieces import FileKind, GpuParts, Piece, SignerParts, decoded_base64, gpu_parts
from shared.attestation.gpu_report import GpuReport, Opaque, parse_report
from shared.attestation.gpu_rim import parse_rim
from shared.attestation.nvidia_eat import parse_eat
from shared.attestation.quote import parse_quote
from shared.attestation.snp_report import parse_snp_report
from shared.canonical import json_value, sha256
from shared.claims.event_log import parse_log
from shared.crypto.jws import parse_compact
from shared.errors import BadRequest
from shared.wire.snp_certificates import NAMES, parse_certificate_table
from shared.wire.visit import Evidence

Fields = dict[str, Any]


def fields(piece: Piece) -> Fields:
    """Everything that can be read. Raises: BadRequest: the piece is malformed."""
    if piece.fault:
        raise BadRequest(f"{piece.name}: {piece.kind.value}: {piece.fault}", code="malformed-evidence")
    if isinstance(piece.parts, GpuParts):
        return _gpu_evidence(piece.parts)
    if isinstance(piece.parts, Evidence):
        return _cvm(piece.parts)
    if isinstance(piece.parts, SignerParts):
        runtime = {f"runtime.{name}": value for name, value in piece.parts.runtime.model_dump(mode="json").items()}
        return {**runtime, **_cvm(piece.parts.evidence), **_gpu_evidence(gpu_parts(piece.parts.gpu))}
    return _FIELDS[piece.kind](piece)


def _quote(piece: Piece) -> Fields:
    return quote_claims(parse_quote(piece.data))


def _snp(piece: Piece) -> Fields:
    return report_claims(parse_snp_report(piece.data))


def _gpu(piece: Piece) -> Fields:
    return _report(parse_report(piece.data))


def _report(report: GpuReport) -> Fields:
    names = {kind.value: kind.name.lower() for kind in Opaque}
    opaque = {f"opaque.{names.get(kind, kind)}": value.hex() for kind, value in report.opaque.items()}
    used = {
        f"measurement.{block}": value.hex() for block, value in enumerate(report.measurements, start=1) if any(value)
    }
    return {
        "nonce": report.nonce.hex(),
        "driver_version": report.driver_version,
        "vbios_version": report.vbios_version,
        "firmware_id": report.fwid.hex() if report.fwid else None,
        "measurements_digest": report.measurements_digest,
        **opaque,
        **used,
    }


def _gpu_evidence(parts: GpuParts) -> Fields:
    said = {"stated_nonce": parts.nonce} if parts.nonce else {}
    return {**said, **_report(parse_report(parts.report)), **_certificates(parts.chain.encode("utf-8", "replace"))}


def _cvm(evidence: Evidence) -> Fields:
    raw = decoded_base64(evidence.quote)
    read = quote_claims(parse_quote(raw)) if evidence.kind == "tdx-quote" else report_claims(parse_snp_report(raw))
    beside = {
        f"{name}_bytes": len(decoded_base64(text))
        for name in ("endorsements", "event_log", "boot_log")
        if (text := getattr(evidence, name))
    }
    return {"kind": evidence.kind, **read, **beside}


def _hcl(piece: Piece) -> Fields:
    blob = parse_hcl(piece.data)
    inside = report_claims(parse_snp_report(blob.report)) if blob.kind == "snp" else {"report": blob.report.hex()}
    data = {"variable_data": _json(blob.variable_data), "variable_data_sha256": sha256(blob.variable_data).hex()}
    return {"kind": blob.kind, **data, **inside}


def _table(piece: Piece) -> Fields:
    entries = parse_certificate_table(piece.data).entries
    return {
        NAMES.get(guid, str(guid)): f"{len(content)} bytes, SHA-256 {sha256(content).hex()}"
        for guid, content in entries.items()
    }


def _certificates(data: bytes) -> Fields:
    return {
        f"certificate.{number}.{name}": value
        for number, der in enumerate(ders_of(data), start=1)
        for name, value in certificate_facts(der).items()
        if value
    }


def _rim(piece: Piece) -> Fields:
    rim = parse_rim(piece.rim_kind, piece.data)
    golden = {f"measurement.{index}": [value.hex() for value in values] for index, values in sorted(rim.golden.items())}
    return {"product": rim.product, "version": rim.version, "manufacturer": rim.manufacturer, **golden}


def _collateral(piece: Piece) -> Fields:
    source = Collateral.parse(piece.data)
    info, identity = _json(source.tcb_info.encode()), _json(source.qe_identity.encode())
    facts = ("issueDate", "nextUpdate", "fmspc", "pceId", "tcbEvaluationDataNumber", "id", "version")
    parts = (("tcb_info", info), ("qe_identity", identity))
    return {
        f"{name}.{fact}": part[fact] for name, part in parts if isinstance(part, dict) for fact in facts if fact in part
    }


def _part(piece: Piece) -> Fields:
    value = json_value(piece.data)
    inner = next(part for name, part in value.items() if name != "signature")
    return (
        {name: part for name, part in inner.items() if not isinstance(part, list | dict)}
        if isinstance(inner, dict)
        else {}
    )


def _boot_log(piece: Piece) -> Fields:
    events = parse_ccel(piece.data)
    return {"events": [{"register": e.index - 1, "type": f"{e.kind:#x}", "digest": e.digest.hex()} for e in events]}


def _event_log(piece: Piece) -> Fields:
    return {"events": [entry.model_dump(mode="json", exclude_none=True) for entry in parse_log(piece.data).entries]}


def _result(piece: Piece) -> Fields:
    header, payload, _ = parse_compact(piece.data.decode("ascii"))
    return {**{f"header.{name}": value for name, value in header.items()}, **payload}


def _nvidia_result(piece: Piece) -> Fields:
    bundle = parse_eat(piece.data)
    parts = {"header": bundle.header, "platform": bundle.platform, **bundle.submodules}
    return {f"{part}.{name}": value for part, claims in parts.items() for name, value in claims.items()}


def _bytes(piece: Piece) -> Fields:
    return {"bytes": len(piece.data), "sha256": sha256(piece.data).hex()}


def _json(raw: bytes) -> Any:
    try:
        return json_value(raw)
    except BadRequest:
        return raw.decode("latin-1")


_FIELDS = {
    FileKind.TDX_QUOTE: _quote, FileKind.SNP_REPORT: _snp, FileKind.GPU_REPORT: _gpu, FileKind.HCL: _hcl,
    FileKind.SNP_TABLE: _table, FileKind.CERTIFICATES: lambda piece: _certificates(piece.data), FileKind.CRL: _bytes,
    FileKind.OCSP: _bytes, FileKind.DRIVER_RIM: _rim, FileKind.VBIOS_RIM: _rim, FileKind.COLLATERAL: _collateral,
    FileKind.COLLATERAL_PART: _part, FileKind.BOOT_LOG: _boot_log, FileKind.EVENT_LOG: _event_log, FileKind.RESULT: _result,
    FileKind.NVIDIA_RESULT: _nvidia_result,
}  # fmt: skip
