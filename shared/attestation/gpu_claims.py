"""NVIDIA's claims about one GPU, version 3.0, from an examination. Knows no token, no key and no clock.

Names and spellings as NVIDIA's own verifiers give them (reference h100.md 3.4). Claims describe; they accept nothing, and without a
signature over them they prove nothing.
"""

from __future__ import annotations

from datetime import datetime

from shared.attestation.gpu_examination import GpuFindings, RimFindings
from shared.attestation.gpu_ocsp import Revocation
from shared.attestation.p384_chain import Chain
from shared.attestation.results import CheckStatus, Examination

VERSION = "3.0"


def nvidia_claims(found: GpuFindings) -> dict[str, object]:
    """Claim name -> value: text, number, boolean, None, list or mapping of these; ready for JSON."""
    checks, report, device = found.examination, found.report, found.device
    matched = _measured(found)
    return {
        "eat_nonce": report.nonce.hex() if report else None,
        "measres": matched,
        "secboot": True if matched == "success" else None,
        "dbgstat": "disabled" if matched == "success" else None,
        "hwmodel": device.model if device else None,
        "ueid": device.ueid if device else None,
        "oemid": _manufacturer(found),
        "x-nvidia-device-type": "gpu",
        "x-nvidia-gpu-claims-version": VERSION,
        "x-nvidia-attestation-warning": None,
        "x-nvidia-mismatch-measurement-records": _mismatches(found),
        "x-nvidia-gpu-arch-check": _passed(checks, "device-type"),
        "x-nvidia-gpu-driver-version": report.driver_version if report else None,
        "x-nvidia-gpu-vbios-version": report.vbios_version if report else None,
        "x-nvidia-gpu-attestation-report-cert-chain": _chain(
            checks, found.chain, found.revocation, ("root", "links"), "certificate-time"
        ),
        "x-nvidia-gpu-attestation-report-cert-chain-fwid-match": _passed(checks, "firmware-id"),
        "x-nvidia-gpu-attestation-report-parsed": _passed(checks, "layout"),
        "x-nvidia-gpu-attestation-report-nonce-match": _passed(checks, "nonce"),
        "x-nvidia-gpu-attestation-report-signature-verified": _passed(checks, "signature"),
        **_rim(checks, "driver", found.driver),
        **_rim(checks, "vbios", found.vbios),
        "x-nvidia-gpu-vbios-index-no-conflict": _passed(checks, "rim-indices"),
    }


def _rim(checks: Examination, kind: str, rim: RimFindings) -> dict[str, object]:
    name, head = f"{kind}-rim", f"x-nvidia-gpu-{kind}-rim"
    return {
        f"{head}-fetched": checks.find(name).status is not CheckStatus.NOT_CHECKED,
        f"{head}-schema-validated": _passed(checks, name),
        f"{head}-version-match": _passed(checks, f"{name}-version"),
        f"{head}-cert-chain": _chain(checks, rim.chain, rim.revocation, (f"{name}-chain",), f"{name}-time"),
        f"{head}-signature-verified": _passed(checks, f"{name}-signature"),
        f"{head}-measurements-available": rim.rim is not None,
    }


def _chain(
    checks: Examination, chain: Chain | None, revocation: Revocation, links: tuple[str, ...], time: str
) -> dict[str, object]:
    status = "invalid"
    if _passed(checks, *links):
        status = "expired" if checks.find(time).status is CheckStatus.EXPIRED else "valid"
    return {
        "x-nvidia-cert-status": status,
        "x-nvidia-cert-expiration-date": _time(chain.expires) if chain else None,
        "x-nvidia-cert-ocsp-status": revocation.status,
        "x-nvidia-cert-revocation-reason": revocation.reason,
    }


def _measured(found: GpuFindings) -> str:
    """NVIDIA's words: "success" only when a genuine report agrees with both manifests, both believed."""
    if found.report is None:
        return "absent"
    if found.comparison is None:
        return "not-run"
    genuine = _passed(found.examination, "root", "links", "signature", "device-type", "rim-indices")
    if found.comparison.mismatches or (not genuine and found.driver.rim and found.vbios.rim):
        return "fail"
    return "success" if genuine else "not-run"


def _mismatches(found: GpuFindings) -> list[dict[str, object]] | None:
    wrong = found.comparison.mismatches if found.comparison else ()
    return [mismatch.claim() for mismatch in wrong] or None


def _manufacturer(found: GpuFindings) -> str | None:
    return next((rim.rim.manufacturer for rim in (found.driver, found.vbios) if rim.rim), None)


def _passed(checks: Examination, *names: str) -> bool:
    return all(checks.find(name).status is CheckStatus.PASS for name in names)


def _time(moment: datetime) -> str:
    return f"{moment:%Y-%m-%dT%H:%M:%SZ}"
