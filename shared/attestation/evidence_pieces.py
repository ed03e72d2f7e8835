"""A piece of evidence as a file holds it, and what JSON holds of one, decoded. Knows no file, no root and no policy; believes nothing."""

from __future__ import annotations

import base64
import binascii
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from shared.attestation.gpu_rim import RimKind
from shared.canonical import json_value
from shared.errors import BadRequest
from shared.wire.visit import Evidence, GpuEvidence, RuntimeData


class FileKind(StrEnum):
    """What a piece is, in words for people."""

    TDX_QUOTE = "TDX quote"
    SNP_REPORT = "SEV-SNP report"
    SNP_TABLE = "SEV-SNP certificate table"
    HCL = "Azure HCL report"
    GPU_REPORT = "GPU report"
    GPU_EVIDENCE = "GPU evidence"
    CVM_EVIDENCE = "CVM evidence"
    SIGNER = "attested signing key"
    CERTIFICATES = "certificates"
    CRL = "revocation list"
    OCSP = "OCSP response"
    DRIVER_RIM = "driver RIM"
    VBIOS_RIM = "VBIOS RIM"
    COLLATERAL = "TDX collateral"
    COLLATERAL_PART = "part of TDX collateral"
    EVENT_LOG = "event log"
    BOOT_LOG = "boot event log"
    RESULT = "attestation result"
    NVIDIA_RESULT = "NVIDIA attestation result"


@dataclass(frozen=True)
class GpuParts:
    """One GPU's report with its chain; `nonce` as the file itself names it, which proves nothing."""

    report: bytes
    chain: str
    ocsp: tuple[bytes, ...] = ()
    nonce: str = ""


@dataclass(frozen=True)
class SignerParts:
    """An orchestrator's attested key as receipts keep it, and the evidence for it. `signing_key`: as written beside, by nobody signed."""

    runtime_data: bytes
    runtime: RuntimeData
    evidence: Evidence
    gpu: GpuEvidence
    signing_key: str | None = None


@dataclass(frozen=True)
class Piece:
    """One piece of evidence, not believed. `data`: its exact bytes; `parts`: what JSON held, by kind."""

    kind: FileKind
    name: str
    data: bytes
    parts: GpuParts | SignerParts | Evidence | None = None
    fault: str = ""

    @property
    def rim_kind(self) -> RimKind:
        """Of a manifest."""
        return "driver" if self.kind is FileKind.DRIVER_RIM else "vbios"


def gpu_parts(evidence: GpuEvidence) -> GpuParts:
    """Our own form of a GPU's evidence, decoded. Raises: BadRequest `malformed-base64`."""
    ocsp = tuple(decoded_base64(response) for response in evidence.ocsp)
    return GpuParts(decoded_base64(evidence.report), evidence.chain, ocsp)


def nvidia_parts(value: dict[str, Any]) -> GpuParts:
    """An entry of NVIDIA's serialized evidence: arch, certificate (base64 of PEM), evidence (base64), nonce (hex)."""
    chain = decoded_base64(value["certificate"]).decode("utf-8", "replace")
    nonce = value.get("nonce")
    return GpuParts(decoded_base64(value["evidence"]), chain, nonce=nonce if isinstance(nonce, str) else "")


def signer_parts(value: dict[str, Any]) -> SignerParts:
    """An entry of `keys.jsonl` or of an orchestrator's keys. Raises: BadRequest `malformed-base64`, `malformed-json`; ValidationError."""
    raw, named = decoded_base64(value["runtime_data"]), value.get("signing_key")
    runtime = RuntimeData.model_validate(json_value(raw))
    evidence, gpu = Evidence.model_validate(value["evidence"]), GpuEvidence.model_validate(value["gpu_evidence"])
    return SignerParts(raw, runtime, evidence, gpu, None if named is None else str(named))


def decoded_base64(text: Any) -> bytes:
    """Strict base64. Raises: BadRequest `malformed-base64`."""
    try:
        return base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError, TypeError):
        raise BadRequest("a part of the evidence is not base64", code="malformed-base64") from None
